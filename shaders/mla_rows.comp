#version 450
#extension GL_GOOGLE_include_directive : require
// Rotated queries and cache rows of a batch: workgroup (row, head), the last one of a row for the
// cache. b holds the heads' queries of a row, q takes their rotated part behind the absorbed one.
// build: [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;

READS(0, float, a)     // latent and key of a row, from a_off on
READS(1, float, b)     // (batch, heads, nope + n_rot)
WEIGHT(2, h)           // gain of the latent's norm
READS(3, vec2, rope)
UPDATES(4, float, q)   // (batch, heads, rank + n_rot)
UPDATES(5, uint, k)
READS(6, uint, step)
PUSH { uint rank; uint nope; uint n_rot; uint heads; float eps; uint a_stride; uint a_off;
    uint b_stride; uint k_base; PLANES(h); } p;

shared float partial[WORKGROUP];
#include "mla_cache.glsl"

void main() {
    uint t = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, head = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    uint pos = step[STEP_POS] + row;
    if (head == p.heads) {
        write_latent(pos, row * p.a_stride, p.a_off, t);
        return;
    }
    uint from = row * p.b_stride + head * (p.nope + p.n_rot) + p.nope;
    uint to = (row * p.heads + head) * (p.rank + p.n_rot) + p.rank;
    for (uint i = t; i < p.n_rot / 2u; i += WORKGROUP) {
        vec2 v = turned(pos, i, vec2(b[from + 2u * i], b[from + 2u * i + 1u]));
        q[to + 2u * i] = v.x;
        q[to + 2u * i + 1u] = v.y;
    }
}
