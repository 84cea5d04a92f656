#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Norm and router product of one token, a workgroup per expert: the first half of router_token, for
// kernels that choose experts themselves.
// spec: 0 workgroup, 1 subgroup size, 2 COLS
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, x)
WEIGHT(1, g)
WEIGHT(2, w)
WRITES(3, float, logits)
READS(4, uint, step)
PUSH { uint cols; float eps; PLANES(g); PLANES(w); } p;

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint SUBGROUP = 8u;
layout(constant_id = 2) const uint COLS = 64u;

#include "router_row.glsl"

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID, expert = gl_WorkGroupID.x;
    float own = logit(t, expert);
    if (t == 0u && !stopped) logits[expert] = own;
}
