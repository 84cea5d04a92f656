#version 450
#extension GL_GOOGLE_include_directive : require
// y += b in the first min(n, rows) rows of y: one invocation per value.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

UPDATES(0, float, y)
WEIGHT(1, b)
READS(2, uint, step)
PUSH { uint cols; uint rows; PLANES(b); } p;

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || row >= min(step[STEP_N], p.rows) || i >= p.cols) return;
    y[row * p.cols + i] += uintBitsToFloat(b[p.b_p0 + i]);
}
