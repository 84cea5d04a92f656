#version 450
#extension GL_GOOGLE_include_directive : require
// Experts of every token of a batch, from the logits of its router: one workgroup per token.
#include "types.glsl"
#include "step.glsl"

READS(0, float, logits)
WEIGHT(1, b)
WRITES(2, vec2, route)
READS(3, uint, step)
PUSH { uint gating; uint groups_used; uint group_best; float scale; float sum_floor; float top_p;
    PLANES(b); } p;

#include "router.glsl"

void main() {
    uint token = gl_WorkGroupID.x, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || token >= step[STEP_N]) return;
    for (uint e = t; e < EXPERTS; e += WORKGROUP)
        prob[e] = logits[token * EXPERTS + e] + uintBitsToFloat(b[p.b_p0 + e]);
    barrier();
    choose(token, t);
}
