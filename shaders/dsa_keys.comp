#version 450
#extension GL_GOOGLE_include_directive : require
// Keys of the sparse attention's indexer: layer norm with bias, rotation of the first n_rot values,
// row of the cache. One workgroup per token. Values that turn together are `apart` from each other:
// 1, or n_rot / 2.
// build: [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint DIM = 64u;

READS(0, float, x)
WEIGHT(1, h)           // gains (DIM), then biases
READS(2, vec2, rope)
UPDATES(3, uint, k)
READS(4, uint, step)
PUSH { uint x_stride; uint x_off; uint n_rot; uint apart; float eps; uint k_base; PLANES(h); } p;

shared float key[DIM], partial[WORKGROUP];
#include "dsa_turn.glsl"

float sum_all(float own, uint t) {
    partial[t] = own;
    barrier();
    for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
        if (t < d) partial[t] += partial[t + d];
        barrier();
    }
    float total = partial[0];
    barrier();
    return total;
}

void main() {
    uint t = gl_LocalInvocationID.x, row = gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    uint from = row * p.x_stride + p.x_off, pos = step[STEP_POS] + row;
    float sum = 0.0, squares = 0.0;
    for (uint i = t; i < DIM; i += WORKGROUP) sum += x[from + i];
    float mean = sum_all(sum, t) / float(DIM);
    for (uint i = t; i < DIM; i += WORKGROUP) {
        float v = x[from + i] - mean;
        key[i] = v;
        squares += v * v;
    }
    float scale = inversesqrt(sum_all(squares, t) / float(DIM) + p.eps);
    for (uint i = t; i < DIM; i += WORKGROUP)
        key[i] = key[i] * scale * uintBitsToFloat(h[p.h_p0 + i])
            + uintBitsToFloat(h[p.h_p0 + DIM + i]);
    barrier();
    for (uint i = 2u * t; i < DIM; i += 2u * WORKGROUP) {
        vec2 v = vec2(turned(0u, i, pos), turned(0u, i + 1u, pos));
#ifdef KV16
        k[p.k_base + (pos * DIM + i) / 2u] = packHalf2x16(v);
#else
        k[p.k_base + pos * DIM + i] = floatBitsToUint(v.x);
        k[p.k_base + pos * DIM + i + 1u] = floatBitsToUint(v.y);
#endif
    }
}
