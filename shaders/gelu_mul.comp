#version 450
#extension GL_GOOGLE_include_directive : require
// y = gelu(y) e[e_off …] for the rows of a batch.
#define GEGLU 1
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

UPDATES(0, float, y)
READS(1, float, e)
READS(2, uint, step)
PUSH { uint cols; uint y_stride; uint e_stride; uint e_off; } p;

#include "gate.glsl"

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || i >= p.cols || row >= step[STEP_N]) return;
    uint at = row * p.y_stride + i;
    y[at] = activated(y[at]) * e[row * p.e_stride + p.e_off + i];
}
