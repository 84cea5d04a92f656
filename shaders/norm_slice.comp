#version 450
#extension GL_GOOGLE_include_directive : require
// Root-mean-square normalisation of `width` values of each row of a batch, from x_off on; the rest
// up to `cols` becomes zero.
// build: [F32|F16|Q8]
#include "types.glsl"
#include "step.glsl"

READS(0, float, x)
WEIGHT(1, g)
WRITES(2, uvec2, y)
READS(3, uint, step)
PUSH { uint cols; uint width; uint x_stride; uint x_off; uint y_stride; float eps; PLANES(g); } p;

float scale;

float value(uint from, uint i) {
    return i < p.width ? x[from + i] * scale * uintBitsToFloat(g[p.g_p0 + i]) : 0.0;
}

vec4 value4(uint row, uint i) {
    uint from = row * p.x_stride + p.x_off, at = 4u * i;
    return vec4(value(from, at), value(from, at + 1u), value(from, at + 2u), value(from, at + 3u));
}

#include "quantize_rows.glsl"

shared float partial[WORKGROUP];

void main() {
    uint row = gl_WorkGroupID.x, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    float sum = 0.0;
    for (uint i = t; i < p.width; i += WORKGROUP) {
        float v = x[row * p.x_stride + p.x_off + i];
        sum += v * v;
    }
    partial[t] = sum;
    barrier();
    for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
        if (t < d) partial[t] += partial[t + d];
        barrier();
    }
    scale = inversesqrt(partial[0] / float(p.width) + p.eps);
    write_row(row);
}
