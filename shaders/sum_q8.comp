#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// The residual stream from its parts (narrow_sum.glsl) as other kernels want it: the sum, the sum
// times a gain in int8, and sums of squares of groups of 16. One workgroup.
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, g)
READS(1, vec4, x)
UPDATES(2, vec4, y)
WRITES(3, uvec4, yq)
WRITES(4, vec2, ys)
WRITES(5, float, ssq)
READS(6, uint, step)
PUSH { PLANES(g); } p;

#include "narrow_sum.glsl"

void keep(uint n, vec4 sum) {
    float own = dot(sum, sum);
    own += subgroupShuffleXor(own, 1u);
    own += subgroupShuffleXor(own, 2u);
    y[n] = sum;
    if ((n & 3u) == 0u) ssq[n / 4u] = own;
}

void main() {
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    if (!sum_parts(t, true, step[STEP_STOP] != 0u)) return;
    for (uint i = t; i < COLS / 16u; i += WORKGROUP) {
        yq[i] = xq[i];
        ys[i] = xs[i];
    }
}
