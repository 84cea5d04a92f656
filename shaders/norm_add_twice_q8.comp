#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// y = (y + rmsnorm(x0) p0 + rmsnorm(x1) p1) scale for one token, x = [x0; x1], post = [p0; p1]; the
// rest is as in norm_add_q8.comp.
#define ADD 1
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;  // a multiple of 16
layout(constant_id = 1) const uint SUBGROUP = 8u;

READS(0, float, x)
WEIGHT(1, post)
WEIGHT(2, g)
UPDATES(3, float, y)
WRITES(4, uint, yq)
WRITES(5, vec2, ys)
WRITES(6, float, ssq)
READS(7, uint, step)
PUSH { uint cols; float eps; float scale; PLANES(post); PLANES(g); } p;

shared vec2 partial[WORKGROUP / SUBGROUP];
shared float outs[SUBGROUP >= 16u ? 1u : WORKGROUP];
#include "quant16.glsl"

// Value i of either vector times its gain
vec2 gained(uint i) {
    return vec2(x[i] * uintBitsToFloat(post[p.post_p0 + i]),
                x[p.cols + i] * uintBitsToFloat(post[p.post_p0 + p.cols + i]));
}

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    uint first = gl_WorkGroupID.x * WORKGROUP, count = min(p.cols - first, WORKGROUP);
    float own = 0.0, gain = 0.0;
    vec2 source = vec2(0.0);
    if (t < count) {
        own = y[first + t];
        source = gained(first + t);
        gain = uintBitsToFloat(g[p.g_p0 + first + t]);
    }
    vec2 sum = vec2(0.0);
    for (uint i = t; i < p.cols; i += WORKGROUP) {
        vec2 pair = vec2(x[i], x[p.cols + i]);
        sum += pair * pair;
    }
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) sum += subgroupShuffleXor(sum, d);
    if (gl_SubgroupInvocationID == 0u) partial[gl_SubgroupID] = sum;
    barrier();
    sum = vec2(0.0);
    for (uint i = 0u; i < WORKGROUP / SUBGROUP; i++) sum += partial[i];
    own = (own + dot(source, inversesqrt(sum / float(p.cols) + p.eps))) * p.scale;
    if (t < count) y[first + t] = own;
    store_squares(first, count, t, t < count ? own : 0.0);
    quantize_values(first, count, t, t < count ? own * gain : 0.0);
}
