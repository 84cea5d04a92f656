#version 450
#extension GL_GOOGLE_include_directive : require
// Inner vectors of the experts of a batch, in the order of the experts: silu(gate) * up. A row of gu
// is gate (cols values), then up (cols values).
// build: [F32|F16|Q8]
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, gu)
READS(1, uint, start)
WRITES(2, uvec2, y)
READS(3, uint, step)
PUSH { uint cols; uint y_stride; uint experts; } p;

vec4 value4(uint row, uint i) {
    uint at = row * p.cols / 2u + i;
    vec4 gate = gu[at];
    return gate / (1.0 + exp(-gate)) * gu[at + p.cols / 4u];
}

#include "quantize_rows.glsl"

void main() {
    uint row = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u || row >= start[p.experts]) return;
    write_row(row);
}
