#version 450
#extension GL_GOOGLE_include_directive : require
// Norm, router product and choice of experts of one token in one dispatch: a workgroup makes the
// logits of PER experts, and the one that finishes last chooses. `arrived` counts the finished
// ones; the last sets it back to zero.
// build: [SG0|SG1]
// spec: 5 PER (SG0)
#ifdef SG1
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, x)
WEIGHT(1, g)
WEIGHT(2, w)
WEIGHT(3, b)
SHARES(4, float, logits)
SHARES(5, uint, arrived)
WRITES(6, vec2, route)
READS(7, uint, step)
PUSH { uint cols; float eps; uint gating; uint groups_used; uint group_best; float scale;
    float sum_floor; float top_p; PLANES(g); PLANES(w); PLANES(b); } p;

#ifdef SG1
#include "router_lanes.glsl"
#else
#include "router.glsl"

layout(constant_id = 5) const uint PER = 1u;
shared float partial[(PER + 1u) * WORKGROUP];
shared bool last;

void main() {
    uint t = gl_LocalInvocationID.x, first = gl_WorkGroupID.x * PER;
    if (step[STEP_STOP] != 0u) return;
    float sums[PER + 1u];
    FLAT for (uint i = 0u; i <= PER; i++) sums[i] = 0.0;
    for (uint c = t; c < p.cols / 4u; c += WORKGROUP) {
        vec4 v = x[c];
        sums[PER] += dot(v, v);
        v *= uintBitsToFloat(g4[p.g_p0 / 4u + c]);
        FLAT for (uint i = 0u; i < PER; i++) {
            uint row = min(first + i, EXPERTS - 1u);
            sums[i] += dot(v, uintBitsToFloat(w4[p.w_p0 / 4u + row * (p.cols / 4u) + c]));
        }
    }
    FLAT for (uint i = 0u; i <= PER; i++) partial[i * WORKGROUP + t] = sums[i];
    barrier();
    for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
        if (t < d)
            FLAT for (uint i = 0u; i <= PER; i++)
                partial[i * WORKGROUP + t] += partial[i * WORKGROUP + t + d];
        barrier();
    }
    float norm = inversesqrt(partial[PER * WORKGROUP] / float(p.cols) + p.eps);
    for (uint i = t; i < PER && first + i < EXPERTS; i += WORKGROUP)
        logits[first + i] = partial[i * WORKGROUP] * norm;
    memoryBarrierBuffer();
    barrier();
    if (t == 0u) last = atomicAdd(arrived[0], 1u) + 1u == gl_NumWorkGroups.x;
    barrier();
    if (!last) return;
    memoryBarrierBuffer();
    if (t == 0u) arrived[0] = 0u;
    for (uint e = t; e < EXPERTS; e += WORKGROUP)
        prob[e] = logits[e] + uintBitsToFloat(b[p.b_p0 + e]);
    barrier();
    choose(0u, t);
}
#endif
