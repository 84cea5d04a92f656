#version 450
#extension GL_GOOGLE_include_directive : require
// Causal attention of a batch over the cache: one workgroup per (BQ query rows, query head),
// BT positions at a time with an online softmax (FlashAttention, Dao et al. 2022).
// build: [F16|F32]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;
layout(constant_id = 1) const uint BQ = 8u;
layout(constant_id = 2) const uint BT = 16u;
layout(constant_id = 3) const uint HEAD_DIM = 64u;

READS(0, float, qkv)
READS(1, uint, k)
READS(2, uint, v)
WRITES(3, float, y)
READS(4, uint, step)
PUSH {
    uint n_head; uint n_head_kv; uint head_dim; float scale; uint window;
    uint k_base; uint v_base;
} p;

const float NEVER = -1e30;
const uint PITCH = HEAD_DIM + 1u;
const uint OUTS = (BQ * HEAD_DIM + WORKGROUP - 1u) / WORKGROUP;

shared float qs[BQ * HEAD_DIM];
shared float kv[BT * PITCH];
shared float ps[BQ * BT];
shared float best[BQ], total[BQ], shrink[BQ];

// Positions [base, base + BT) of one head, as floats, into kv[]; those past `limit` are zero.
void load_tile(bool values, uint base, uint limit, uint kv_head) {
    for (uint e = gl_LocalInvocationID.x; e < BT * (HEAD_DIM / 2u); e += WORKGROUP) {
        uint j = e / (HEAD_DIM / 2u), d = e % (HEAD_DIM / 2u) * 2u;
        vec2 pair = vec2(0.0);
        if (base + j < limit) {
            uint at = ((base + j) * p.n_head_kv + kv_head) * HEAD_DIM + d;
#ifdef F16
            pair = unpackHalf2x16(values ? v[p.v_base + at / 2u] : k[p.k_base + at / 2u]);
#else
            pair = uintBitsToFloat(values ? uvec2(v[p.v_base + at], v[p.v_base + at + 1u])
                                          : uvec2(k[p.k_base + at], k[p.k_base + at + 1u]));
#endif
        }
        kv[j * PITCH + d] = pair.x;
        kv[j * PITCH + d + 1u] = pair.y;
    }
}

void main() {
    uint n = step[STEP_N], pos = step[STEP_POS], t = gl_LocalInvocationID.x;
    uint q0 = gl_WorkGroupID.x * BQ, head = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || q0 >= n) return;
    uint kv_head = head / (p.n_head / p.n_head_kv);
    uint stride = (p.n_head + 2u * p.n_head_kv) * HEAD_DIM;
    for (uint e = t; e < BQ * HEAD_DIM; e += WORKGROUP) {
        uint row = min(q0 + e / HEAD_DIM, n - 1u);
        qs[e] = qkv[row * stride + head * HEAD_DIM + e % HEAD_DIM] * p.scale;
    }
    if (t < BQ) { best[t] = NEVER; total[t] = 0.0; }
    float acc[OUTS];
    for (uint i = 0u; i < OUTS; i++) acc[i] = 0.0;
    uint limit = pos + min(q0 + BQ, n);  // one past the last position that any row sees
    uint first = p.window != 0u && pos + q0 + 1u > p.window ? pos + q0 + 1u - p.window : 0u;
    for (uint base = first; base < limit; base += BT) {
        barrier();
        load_tile(false, base, limit, kv_head);
        barrier();
        for (uint e = t; e < BQ * BT; e += WORKGROUP) {
            uint q = e / BT, j = e % BT, own = pos + q0 + q;
            float s = NEVER;
            if (base + j <= own && (p.window == 0u || base + j + p.window > own)) {
                s = 0.0;
                for (uint d = 0u; d < HEAD_DIM; d++)
                    s = fma(qs[q * HEAD_DIM + d], kv[j * PITCH + d], s);
            }
            ps[e] = s;
        }
        barrier();
        load_tile(true, base, limit, kv_head);
        if (t < BQ) {
            float next = best[t];
            for (uint j = 0u; j < BT; j++) next = max(next, ps[t * BT + j]);
            shrink[t] = exp(best[t] - next);
            float sum = 0.0;
            for (uint j = 0u; j < BT; j++) {
                float s = ps[t * BT + j], e = s == NEVER ? 0.0 : exp(s - next);
                ps[t * BT + j] = e;
                sum += e;
            }
            best[t] = next;
            total[t] = total[t] * shrink[t] + sum;
        }
        barrier();
        for (uint i = 0u; i < OUTS; i++) {
            uint e = t + i * WORKGROUP;
            if (e >= BQ * HEAD_DIM) break;
            uint q = e / HEAD_DIM, d = e % HEAD_DIM;
            float sum = acc[i] * shrink[q];
            for (uint j = 0u; j < BT; j++) sum = fma(ps[q * BT + j], kv[j * PITCH + d], sum);
            acc[i] = sum;
        }
    }
    for (uint i = 0u; i < OUTS; i++) {
        uint e = t + i * WORKGROUP, row = q0 + e / HEAD_DIM;
        if (e >= BQ * HEAD_DIM || row >= n) break;
        y[(row * p.n_head + head) * HEAD_DIM + e % HEAD_DIM] = acc[i] / total[e / HEAD_DIM];
    }
}
