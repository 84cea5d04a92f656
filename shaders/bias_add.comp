#version 450
#extension GL_GOOGLE_include_directive : require
// y += b, for every row of a batch: one invocation per value.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

UPDATES(0, float, y)
WEIGHT(1, b)
READS(2, uint, step)
PUSH { uint cols; PLANES(b); } p;

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N] || i >= p.cols) return;
    y[row * p.cols + i] += uintBitsToFloat(b[p.b_p0 + i]);
}
