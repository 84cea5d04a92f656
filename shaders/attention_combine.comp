#version 450
#extension GL_GOOGLE_include_directive : require
// Joins the partial softmaxes of the splits: one workgroup per query head.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;

READS(0, float, part)
WRITES(1, float, y)
READS(2, uint, step)
PUSH { uint n_head; uint head_dim; uint splits; } p;

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint head = gl_WorkGroupID.x, row = p.head_dim + 2u;
    uint base = head * p.splits * row;
    float best = -1e30;
    for (uint s = 0u; s < p.splits; s++) best = max(best, part[base + s * row + p.head_dim]);
    for (uint d = gl_LocalInvocationID.x; d < p.head_dim; d += WORKGROUP) {
        float sum = 0.0, total = 0.0;
        for (uint s = 0u; s < p.splits; s++) {
            float l = part[base + s * row + p.head_dim + 1u];
            if (l == 0.0) continue;  // an empty split wrote no values
            float weight = exp(part[base + s * row + p.head_dim] - best);
            sum += weight * part[base + s * row + d];
            total += weight * l;
        }
        y[head * p.head_dim + d] = sum / total;
    }
}
