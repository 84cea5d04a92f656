#version 450
#extension GL_GOOGLE_include_directive : require
// Root-mean-square normalisation of the rows of a batch, as rmsnorm.comp.
// build: [F16|Q8]
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, x)
WEIGHT(1, g)
WRITES(2, uvec2, y)
READS(3, uint, step)
PUSH { uint cols; uint y_stride; float eps; PLANES(g); } p;

float scale;

vec4 value4(uint row, uint i) {
    return x[row * p.cols / 4u + i] * scale * uintBitsToFloat(g4[p.g_p0 / 4u + i]);
}

#include "quantize_rows.glsl"

shared float partial[WORKGROUP];

void main() {
    uint row = gl_WorkGroupID.x, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    float sum = 0.0;
    for (uint i = t; i < p.cols / 4u; i += WORKGROUP) {
        vec4 v = x[row * p.cols / 4u + i];
        sum += dot(v, v);
    }
    partial[t] = sum;
    barrier();
    for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
        if (t < d) partial[t] += partial[t + d];
        barrier();
    }
    scale = inversesqrt(partial[0] / float(p.cols) + p.eps);
    write_row(row);
}
