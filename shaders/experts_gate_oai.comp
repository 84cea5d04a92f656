#version 450
#extension GL_GOOGLE_include_directive : require
// Inner vectors of the experts of a batch, in the order of the experts: limited gates with biases. A row of gu
// is gate (cols values), then up (cols values).
// build: [F32|F16|Q8]
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, gu)
READS(1, uint, start)
WRITES(2, uvec2, y)
READS(3, uint, step)
READS(4, vec2, route)
READS(5, uint, order)
WEIGHT(6, b)
PUSH { uint cols; uint y_stride; uint experts; PLANES(b); } p;

const float STEEP = 1.702, LIMIT = 7.0;  // ggml's swiglu_oai
uint expert;

vec4 bias(uint row, uint i) { return uintBitsToFloat(b4[(p.b_p0 + row * p.cols) / 4u + i]); }

vec4 value4(uint row, uint i) {
    uint at = row * p.cols / 2u + i;
    vec4 gate = min(gu[at] + bias(expert, i), LIMIT);
    vec4 up = clamp(gu[at + p.cols / 4u] + bias(p.experts + expert, i), -LIMIT, LIMIT);
    return gate / (1.0 + exp(-STEEP * gate)) * (up + 1.0);
}

#include "quantize_rows.glsl"

void main() {
    uint row = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u || row >= start[p.experts]) return;
    expert = uint(route[order[row]].x);
    write_row(row);
}
