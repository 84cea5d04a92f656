#version 450
#extension GL_GOOGLE_include_directive : require
// Root-mean-square normalisation of the rows of a batch: one workgroup per row.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;

READS(0, float, x)
WEIGHT(1, g)
WRITES(2, float, y)
READS(3, uint, step)
PUSH { uint n_embd; float eps; PLANES(g); } p;

shared float partial[WORKGROUP];

void main() {
    uint row = gl_WorkGroupID.x, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    uint base = row * p.n_embd;
    float sum = 0.0;
    for (uint i = t; i < p.n_embd; i += WORKGROUP) sum += x[base + i] * x[base + i];
    partial[t] = sum;
    barrier();
    for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
        if (t < d) partial[t] += partial[t + d];
        barrier();
    }
    float scale = inversesqrt(partial[0] / float(p.n_embd) + p.eps);
    for (uint i = t; i < p.n_embd; i += WORKGROUP)
        y[base + i] = x[base + i] * scale * uintBitsToFloat(g[p.g_p0 + i]);
}
