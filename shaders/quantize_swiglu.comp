#version 450
#extension GL_GOOGLE_include_directive : require
// silu(gate) * up of a batch; a row of gu is gate (cols values), then up (cols values).
// build: [F16|Q8]
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, gu)
WRITES(1, uvec2, y)
READS(2, uint, step)
PUSH { uint cols; uint y_stride; } p;

#include "gate.glsl"

vec4 value4(uint row, uint i) {
    uint at = row * p.cols / 2u + i;
    return activated(gu[at]) * gu[at + p.cols / 4u];
}

#include "quantize_rows.glsl"

void main() {
    uint row = gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    write_row(row);
}
