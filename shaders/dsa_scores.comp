#version 450
#extension GL_GOOGLE_include_directive : require
// Scores of positions for a token: the sum over the indexer's heads of weight * relu(q k). One
// invocation per position; a token with few positions needs no scores.
// build: [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint DIM = 64u;
layout(constant_id = 2) const uint HEADS = 1u;  // in shared memory at a time

READS(0, float, q)     // (batch, heads, DIM)
READS(1, float, w)     // weights of the heads at w_off of each row
READS(2, uint, k)
READS(3, vec2, rope)
WRITES(4, float, score) // (batch, positions)
READS(5, uint, step)
PUSH { uint heads; uint w_stride; uint w_off; uint n_rot; uint apart; uint most; uint positions;
    float scale; uint k_base; } p;

shared float key[HEADS * DIM];
shared vec2 query[HEADS * DIM / 2u];
shared float weight[HEADS];
#include "dsa_turn.glsl"

vec2 cached(uint pos, uint i) {
#ifdef KV16
    return unpackHalf2x16(k[p.k_base + pos * (DIM / 2u) + i]);
#else
    uint at = p.k_base + pos * DIM + 2u * i;
    return uintBitsToFloat(uvec2(k[at], k[at + 1u]));
#endif
}

void main() {
    uint t = gl_LocalInvocationID.x, row = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    uint len = step[STEP_POS] + row + 1u, pos = gl_WorkGroupID.x * WORKGROUP + t;
    if (len <= p.most || gl_WorkGroupID.x * WORKGROUP >= len) return;
    vec2 own[DIM / 2u];
    FLAT for (uint i = 0u; i < DIM / 2u; i++) own[i] = cached(min(pos, len - 1u), i);
    float total = 0.0;
    for (uint h0 = 0u; h0 < p.heads; h0 += HEADS) {
        uint count = min(p.heads - h0, HEADS);
        barrier();
        for (uint e = t; e < count * DIM; e += WORKGROUP)
            key[e] = q[(row * p.heads + h0) * DIM + e];
        for (uint h = t; h < count; h += WORKGROUP)
            weight[h] = w[row * p.w_stride + p.w_off + h0 + h] * p.scale;
        barrier();
        for (uint e = t; e < count * DIM / 2u; e += WORKGROUP) {
            uint from = 2u * e / DIM * DIM, d = 2u * e % DIM;
            query[e] = vec2(turned(from, d, len - 1u), turned(from, d + 1u, len - 1u));
        }
        barrier();
        for (uint h = 0u; h < count; h++) {
            float s = 0.0;
            FLAT for (uint i = 0u; i < DIM / 2u; i++) s += dot(own[i], query[h * DIM / 2u + i]);
            total += weight[h] * max(s, 0.0);
        }
    }
    if (pos < len) score[row * p.positions + pos] = total;
}
