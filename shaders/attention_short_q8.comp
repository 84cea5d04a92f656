#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Decode attention over a short context of float16 keys and values, result in int8 groups of 16.
// A workgroup takes a head. LANES lanes share a position, UNROLL of which are on their way at once
// with their values; each such group of lanes keeps a softmax of its own, and all are joined at
// the end: one barrier, and none between scores and values.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint HEAD_DIM = 64u;  // multiple of 16
layout(constant_id = 2) const uint LANES = 8u;      // a power of two, at most the subgroup size
layout(constant_id = 3) const uint SUBGROUP = 8u;
layout(constant_id = 4) const uint UNROLL = 4u;
layout(constant_id = 5) const uint RING = 0u;  // rows of the caches (cache.glsl)

READS(0, vec4, qkv)
CACHE(1, k)
CACHE(2, v)
WRITES(3, uint, yq)
WRITES(4, vec2, ys)
READS(5, uint, step)
PUSH { uint n_head; uint n_head_kv; float scale; uint window; float softcap; uint k_base;
    uint v_base; } p;

#include "cache.glsl"
#include "softcap.glsl"
shared float outs[SUBGROUP >= 16u ? 1u : WORKGROUP];
#include "quant16.glsl"

const float NEVER = -1e30;
const uint VECTORS = HEAD_DIM / 8u;                      // of 16 bytes, in a head's row
const uint PIECES = (VECTORS + LANES - 1u) / LANES;      // vectors of a lane
const uint STREAMS = WORKGROUP / LANES;
const uint FLIGHT = UNROLL * PIECES;

shared vec4 sums[STREAMS * VECTORS * 2u];
shared float most[STREAMS], total[STREAMS];

float product(uvec4 e, vec4 low, vec4 high) {
    return dot(low, vec4(unpackHalf2x16(e.x), unpackHalf2x16(e.y)))
        + dot(high, vec4(unpackHalf2x16(e.z), unpackHalf2x16(e.w)));
}

// Positions start + stream, start + stream + STREAMS, … below len; leaves the state in shared memory
void attend(uint start, uint len, uint head, uint lane, uint stream) {
    uint kv_head = head / (p.n_head / p.n_head_kv), width = p.n_head_kv * VECTORS;
    uint column[PIECES];
    vec4 q[2u * PIECES], acc[2u * PIECES];
    FLAT for (uint i = 0u; i < PIECES; i++) {
        uint piece = min(lane + i * LANES, VECTORS - 1u);
        float used = lane + i * LANES < VECTORS ? p.scale : 0.0;
        column[i] = kv_head * VECTORS + piece;
        q[2u * i] = used * qkv[(head * VECTORS + piece) * 2u];
        q[2u * i + 1u] = used * qkv[(head * VECTORS + piece) * 2u + 1u];
        acc[2u * i] = acc[2u * i + 1u] = vec4(0.0);
    }
    float high = NEVER, weight = 0.0;
    for (uint first = start + stream; first < len; first += STREAMS * UNROLL) {
        uvec4 keys[FLIGHT], values[FLIGHT];
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            bool seen = first + u * STREAMS < len;  // what is not is not loaded either
            uint row = key_row(first + u * STREAMS) * width;
            FLAT for (uint i = 0u; i < PIECES; i++) {
                keys[u * PIECES + i] = values[u * PIECES + i] = uvec4(0u);
                if (seen) keys[u * PIECES + i] = k[p.k_base / 4u + row + column[i]];
                if (seen) values[u * PIECES + i] = v[p.v_base / 4u + row + column[i]];
            }
        }
        float score[UNROLL];
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            score[u] = 0.0;
            FLAT for (uint i = 0u; i < PIECES; i++)
                score[u] += product(keys[u * PIECES + i], q[2u * i], q[2u * i + 1u]);
        }
        for (uint d = LANES / 2u; d > 0u; d /= 2u)
            FLAT for (uint u = 0u; u < UNROLL; u++) score[u] += subgroupShuffleXor(score[u], d);
        float before = high;
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            if (p.softcap != 0.0) score[u] = capped(score[u], p.softcap);
            if (first + u * STREAMS >= len) score[u] = NEVER;
            high = max(high, score[u]);
        }
        float less = exp(before - high);
        weight *= less;
        FLAT for (uint i = 0u; i < 2u * PIECES; i++) acc[i] *= less;
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            float e = exp(score[u] - high);
            weight += e;
            FLAT for (uint i = 0u; i < PIECES; i++) {
                uvec4 x = values[u * PIECES + i];
                acc[2u * i] += e * vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
                acc[2u * i + 1u] += e * vec4(unpackHalf2x16(x.z), unpackHalf2x16(x.w));
            }
        }
    }
    FLAT for (uint i = 0u; i < PIECES; i++) {
        uint piece = lane + i * LANES;
        if (piece >= VECTORS) break;
        sums[(stream * VECTORS + piece) * 2u] = acc[2u * i];
        sums[(stream * VECTORS + piece) * 2u + 1u] = acc[2u * i + 1u];
    }
    if (lane == 0u) {
        most[stream] = high;
        total[stream] = weight;
    }
}

// Value e of the head over all streams
float joined(uint e) {
    float high = NEVER, sum = 0.0, weights = 0.0;
    for (uint j = 0u; j < STREAMS; j++) high = max(high, most[j]);
    for (uint j = 0u; j < STREAMS; j++) {
        float less = exp(most[j] - high);
        sum += less * sums[j * VECTORS * 2u + e / 4u][e % 4u];
        weights += less * total[j];
    }
    return sum / weights;
}

void main() {
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID, head = gl_WorkGroupID.x;
    bool stopped = step[STEP_STOP] != 0u;
    uint len = step[STEP_POS] + 1u;
    if (stopped) return;
    uint start = p.window != 0u && len > p.window ? len - p.window : 0u;
    attend(start, len, head, t % LANES, t / LANES);
    barrier();
    for (uint first = 0u; first < HEAD_DIM; first += WORKGROUP) {
        uint count = min(HEAD_DIM - first, WORKGROUP);
        if (SUBGROUP >= 16u && gl_SubgroupID * SUBGROUP >= count) return;
        float own = t < count ? joined(first + t) : 0.0;
        quantize_values(head * HEAD_DIM + first, count, t, own);
    }
}
