#version 450
#extension GL_GOOGLE_include_directive : require
// Decode attention, split over the context: one workgroup per (split, key/value head) takes the
// GROUP query heads that share the head, so that keys and values are read once. Writes the
// unnormalised sum of values, the maximum and the sum of exponentials per query head and split
// (online softmax, Milakov and Gimelshein 2018; splits as in Flash-Decoding, Dao et al. 2023).
// build: [F16|F32]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint GROUP = 1u;      // query heads per key/value head
layout(constant_id = 2) const uint HEAD_DIM = 64u;  // multiple of 4

READS(0, float, qkv)
#ifdef F16
READS(1, uvec2, k)
READS(2, uvec2, v)
#else
READS(1, uvec4, k)
READS(2, uvec4, v)
#endif
WRITES(3, float, part)
READS(4, uint, step)
PUSH {
    uint n_head; uint n_head_kv; uint head_dim; uint splits; float scale; uint window;
    uint k_base; uint v_base;
} p;

const uint VECTORS = HEAD_DIM / 4u;              // four values each
const uint RUNS = WORKGROUP >= VECTORS ? WORKGROUP / VECTORS : 1u;  // positions that the value pass takes at once
const uint PASSES = (VECTORS + WORKGROUP - 1u) / WORKGROUP;
const float NEVER = -1e30;                       // finite, so that differences stay finite
const uint MIN_SPLIT = 32u;                      // positions that are worth a workgroup

shared vec4 qs[GROUP * VECTORS];
shared float ps[GROUP * WORKGROUP];
shared float red[GROUP * WORKGROUP];
shared float lsum[GROUP];

#ifdef F16
const uint WORDS = 2u;
vec4 four(uvec2 u) { return vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y)); }
#else
const uint WORDS = 4u;
vec4 four(uvec4 u) { return uintBitsToFloat(u); }
#endif

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint split = gl_WorkGroupID.x, kv_head = gl_WorkGroupID.y, t = gl_LocalInvocationID.x;
    uint len = step[STEP_POS] + 1u;
    uint start = p.window != 0u && len > p.window ? len - p.window : 0u;
    uint per = max((len - start + p.splits - 1u) / p.splits, MIN_SPLIT);
    uint t0 = start + split * per, t1 = min(t0 + per, len);
    uint out0 = (kv_head * GROUP * p.splits + split) * (HEAD_DIM + 2u);
    uint out_step = p.splits * (HEAD_DIM + 2u);
    if (t0 >= t1) {
        for (uint g = t; g < GROUP; g += WORKGROUP) {
            part[out0 + g * out_step + HEAD_DIM] = NEVER;
            part[out0 + g * out_step + HEAD_DIM + 1u] = 0.0;
        }
        return;
    }
    for (uint e = t; e < GROUP * VECTORS; e += WORKGROUP) {
        uint at = kv_head * GROUP * HEAD_DIM + e * 4u;
        qs[e] = vec4(qkv[at], qkv[at + 1u], qkv[at + 2u], qkv[at + 3u]) * p.scale;
    }
    uint row = p.n_head_kv * VECTORS, head = kv_head * VECTORS;
    uint dv = t % VECTORS, run = t / VECTORS;
    float best[GROUP], total[GROUP];
    vec4 acc[GROUP * PASSES];
    for (uint g = 0u; g < GROUP; g++) { best[g] = NEVER; total[g] = 0.0; }
    for (uint i = 0u; i < GROUP * PASSES; i++) acc[i] = vec4(0.0);
    barrier();
    for (uint base = t0; base < t1; base += WORKGROUP) {
        float s[GROUP];
        for (uint g = 0u; g < GROUP; g++) s[g] = NEVER;
        if (base + t < t1) {
            for (uint g = 0u; g < GROUP; g++) s[g] = 0.0;
            uint at = p.k_base / WORDS + (base + t) * row + head;
            for (uint i = 0u; i < VECTORS; i++) {
                vec4 kv = four(k[at + i]);
                for (uint g = 0u; g < GROUP; g++) s[g] += dot(qs[g * VECTORS + i], kv);
            }
        }
        for (uint g = 0u; g < GROUP; g++) red[g * WORKGROUP + t] = s[g];
        barrier();
        for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
            if (t < d)
                for (uint g = 0u; g < GROUP; g++)
                    red[g * WORKGROUP + t] =
                        max(red[g * WORKGROUP + t], red[g * WORKGROUP + t + d]);
            barrier();
        }
        for (uint g = 0u; g < GROUP; g++) {
            float next = max(best[g], red[g * WORKGROUP]);
            float shrink = exp(best[g] - next);
            best[g] = next;
            total[g] *= shrink;
            for (uint i = 0u; i < PASSES; i++) acc[g * PASSES + i] *= shrink;
            ps[g * WORKGROUP + t] = base + t < t1 ? exp(s[g] - next) : 0.0;
        }
        barrier();
        uint count = min(t1 - base, WORKGROUP);
        for (uint i = 0u; i < PASSES; i++) {
            uint vec = dv + i * WORKGROUP;
            if (run >= RUNS || vec >= VECTORS) break;
            uint at = p.v_base / WORDS + base * row + head + vec;
            for (uint j = run; j < count; j += RUNS) {
                vec4 kv = four(v[at + j * row]);
                for (uint g = 0u; g < GROUP; g++) {
                    float weight = ps[g * WORKGROUP + j];
                    acc[g * PASSES + i] += weight * kv;
                    if (i == 0u) total[g] += weight;
                }
            }
        }
        barrier();
    }
    // sums over the runs, in a fixed order; qs is free by now
    for (uint r = 0u; r < RUNS; r++) {
        if (run == r) {
            for (uint i = 0u; i < PASSES; i++) {
                uint vec = dv + i * WORKGROUP;
                if (vec >= VECTORS) break;
                for (uint g = 0u; g < GROUP; g++) {
                    uint at = g * VECTORS + vec;
                    qs[at] = r == 0u ? acc[g * PASSES + i] : qs[at] + acc[g * PASSES + i];
                    if (vec == 0u) lsum[g] = r == 0u ? total[g] : lsum[g] + total[g];
                }
            }
        }
        barrier();
    }
    for (uint e = t; e < GROUP * HEAD_DIM; e += WORKGROUP)
        part[out0 + e / HEAD_DIM * out_step + e % HEAD_DIM] =
            qs[e / HEAD_DIM * VECTORS + e % HEAD_DIM / 4u][e & 3u];
    if (t == 0u)
        for (uint g = 0u; g < GROUP; g++) {
            part[out0 + g * out_step + HEAD_DIM] = best[g];
            part[out0 + g * out_step + HEAD_DIM + 1u] = lsum[g];
        }
}
