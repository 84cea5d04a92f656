#version 450
#extension GL_GOOGLE_include_directive : require
// build: [F16|Q8]
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, x)
WRITES(1, uvec2, y)
READS(2, uint, step)
PUSH { uint cols; uint x_stride; uint y_stride; } p;

vec4 value4(uint row, uint i) { return x[row * p.x_stride / 4u + i]; }

#include "quantize_rows.glsl"

void main() {
    uint row = gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    write_row(row);
}
