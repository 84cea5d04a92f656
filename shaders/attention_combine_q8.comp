#version 450
#extension GL_GOOGLE_include_directive : require
// Joins the splits of a decode attention and quantizes the result: one workgroup per query head.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint HEAD_DIM = 64u;  // multiple of 16

READS(0, float, part)
WRITES(1, uint, yq)
WRITES(2, vec2, ys)
READS(3, uint, step)
PUSH { uint n_head; uint head_dim; uint splits; } p;

shared float outs[HEAD_DIM];
#include "quant16.glsl"
#include "combine.glsl"

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint head = gl_WorkGroupID.x, row = p.head_dim + 2u, t = gl_LocalInvocationID.x;
    uint base = head * p.splits * row;
    load_splits(base, row);
    for (uint d = t; d < HEAD_DIM; d += WORKGROUP) outs[d] = joined(base, row, d);
    barrier();
    quantize_outs(head * HEAD_DIM, HEAD_DIM, t, WORKGROUP);
}
