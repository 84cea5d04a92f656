#version 450
#extension GL_GOOGLE_include_directive : require
// Joins the partial softmaxes of the splits: one workgroup per query head.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;

READS(0, float, part)
WRITES(1, float, y)
READS(2, uint, step)
PUSH { uint n_head; uint head_dim; uint splits; } p;

#include "combine.glsl"

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint head = gl_WorkGroupID.x, row = p.head_dim + 2u;
    uint base = head * p.splits * row;
    load_splits(base, row);
    for (uint d = gl_LocalInvocationID.x; d < p.head_dim; d += WORKGROUP)
        y[head * p.head_dim + d] = joined(base, row, d);
}
