#version 450
#extension GL_GOOGLE_include_directive : require
// y = cap tanh(y / cap) in the first min(n, rows) rows of y.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

UPDATES(0, float, y)
READS(1, uint, step)
PUSH { uint cols; uint rows; float cap; } p;

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || i >= p.cols || row >= min(step[STEP_N], p.rows)) return;
    // beyond 15, tanh is 1 to the last bit, and some drivers overflow
    float z = y[row * p.cols + i] / p.cap;
    if (abs(z) <= 15.0) z = tanh(z);
    else if (!isinf(z) && !isnan(z)) z = sign(z);
    y[row * p.cols + i] = z * p.cap;
}
