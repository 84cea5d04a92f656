#version 450
#extension GL_GOOGLE_include_directive : require
// y = (y + rmsnorm(x) g) scale for every group of `cols` values of the rows of a batch: one
// workgroup per group and row.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;

READS(0, float, x)
WEIGHT(1, g)
UPDATES(2, float, y)
READS(3, uint, step)
PUSH { uint cols; uint groups; float eps; float scale; PLANES(g); } p;

shared float partial[WORKGROUP];

void main() {
    uint row = gl_WorkGroupID.y, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    uint base = (row * p.groups + gl_WorkGroupID.x) * p.cols;
    float sum = 0.0;
    for (uint i = t; i < p.cols; i += WORKGROUP) sum += x[base + i] * x[base + i];
    partial[t] = sum;
    barrier();
    for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
        if (t < d) partial[t] += partial[t + d];
        barrier();
    }
    float inverse = inversesqrt(partial[0] / float(p.cols) + p.eps);
    for (uint i = t; i < p.cols; i += WORKGROUP)
        y[base + i] = (y[base + i] + x[base + i] * inverse * uintBitsToFloat(g[p.g_p0 + i]))
            * p.scale;
}
