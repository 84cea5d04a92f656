#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Decode attention in one dispatch over float16, Q8_0 or Q4_0 caches, result in int8 groups of 16.
// A workgroup takes GROUP query heads of one key/value head and a split of the context; the one
// that finishes last for its heads joins the splits. `arrived` counts the workgroups that are
// done; the last one sets it back to zero.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint GROUP = 1u;      // query heads of a workgroup
layout(constant_id = 2) const uint HEAD_DIM = 64u;  // multiple of 16
layout(constant_id = 7) const uint MIN_SPLIT = 128u;  // positions that are worth a workgroup
layout(constant_id = 8) const uint RING = 0u;  // rows of the caches (cache.glsl)
layout(constant_id = 9) const uint K_TYPE = 0u;
layout(constant_id = 10) const uint V_TYPE = 0u;
#define ANY  // types are constants

READS(0, vec4, qkv)
CACHE(1, k)
CACHE(2, v)
SHARES(3, float, part)
SHARES(4, uint, arrived)
WRITES(5, uint, yq)
WRITES(6, vec2, ys)
READS(7, uint, step)
PUSH {
    uint n_head; uint n_head_kv; uint head_dim; uint splits; float scale; uint window;
    float softcap; uint k_base; uint v_base;
} p;

const float NEVER = -1e30;  // finite, so that differences stay finite

#include "cache_read.glsl"
#include "softcap.glsl"
#include "attention_tiles.glsl"
shared float outs[SUBGROUP >= 16u ? 1u : WORKGROUP];
#include "attention_join.glsl"
#include "quant16.glsl"

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint split = gl_WorkGroupID.x, unit = gl_WorkGroupID.y, first_head = unit * GROUP;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    uint len = step[STEP_POS] + 1u;
    uint start = p.window != 0u && len > p.window ? len - p.window : 0u;
    uint per = max((len - start + p.splits - 1u) / p.splits, MIN_SPLIT);
    uint used = (len - start + per - 1u) / per;
    if (split >= used) return;
    uint t0 = start + split * per;
    attend(t0, min(t0 + per, len), first_head, first_head / (p.n_head / p.n_head_kv), t);
    uint row = HEAD_DIM + 2u, base = first_head * p.splits * row;
    if (used > 1u) {
        for (uint e = t; e < GROUP * HEAD_DIM; e += WORKGROUP)
            part[base + (split + e / HEAD_DIM * p.splits) * row + e % HEAD_DIM] = joined(e);
        for (uint g = t; g < GROUP; g += WORKGROUP) {
            uint at = base + (split + g * p.splits) * row + HEAD_DIM;
            part[at] = most[g];
            part[at + 1u] = total[g];
        }
        if (!arrives_last(unit, base, row, used, t)) return;
    }
    for (uint first = 0u; first < GROUP * HEAD_DIM; first += WORKGROUP) {
        uint e = first + t, count = min(GROUP * HEAD_DIM - first, WORKGROUP);
        float own = 0.0;
        if (used > 1u) {
            if (first > 0u) load_parts(base, row, used, e, 0u);
            if (t < count) own = join_splits(base, row, used, e);
        } else if (t < count) {
            own = joined(e) / total[e / HEAD_DIM];
        }
        quantize_values(first_head * HEAD_DIM + first, count, t, own);
    }
}
