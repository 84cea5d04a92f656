#version 450
#extension GL_GOOGLE_include_directive : require
// silu(gate) * up; a row of gu is gate (n_ff values), then up (n_ff values).
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

READS(0, float, gu)
WRITES(1, float, y)
READS(2, uint, step)
PUSH { uint n_ff; } p;

#include "gate.glsl"

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || i >= p.n_ff || row >= step[STEP_N]) return;
    float up = gu[row * 2u * p.n_ff + p.n_ff + i];
    y[row * p.n_ff + i] = activated(gu[row * 2u * p.n_ff + i]) * up;
}
