#version 450
#extension GL_GOOGLE_include_directive : require
// Rows of a batch copied into the order of their experts, one workgroup per row; any form of rows.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;

READS(0, uvec4, x)
READS(1, uint, start)
READS(2, uint, order)
WRITES(3, uvec4, y)
READS(4, uint, step)
PUSH { uint words; uint slots; uint experts; } p;

void main() {
    uint row = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u || row >= start[p.experts]) return;
    uint from = order[row] / p.slots * (p.words / 4u), to = row * (p.words / 4u);
    for (uint i = gl_LocalInvocationID.x; i < p.words / 4u; i += WORKGROUP) y[to + i] = x[from + i];
}
