#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Decode attention in one dispatch, result in int8 groups of 16: as attention.comp, and the
// workgroup that finishes last for its set of heads joins the splits. `arrived` counts the
// workgroups of a set that are done; the last one sets it back to zero.
// build: [F16|ANY]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint GROUP = 1u;      // query heads of a workgroup, of one key/value head
layout(constant_id = 2) const uint HEAD_DIM = 64u;  // multiple of 16
#ifdef ANY
layout(constant_id = 6) const uint K_TYPE = 0u;
layout(constant_id = 7) const uint V_TYPE = 0u;
#endif
layout(constant_id = 8) const uint RING = 0u;  // rows of the caches (cache.glsl)

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
    float softcap;
    uint k_base; uint v_base;
} p;

const float NEVER = -1e30;  // finite, so that differences stay finite

#include "cache_read.glsl"
#include "softcap.glsl"

// The key/value head of a set of GROUP query heads
uint kv_head(uint set) { return set * GROUP / (p.n_head / p.n_head_kv); }

#include "attention_sg.glsl"
shared float outs[SUBGROUP >= 16u ? 1u : WORKGROUP];
#include "attention_join.glsl"
#include "quant16.glsl"

// positions that a workgroup takes at once: fewer are not worth another one
const uint MIN_SPLIT = WORKGROUP / LANES * UNROLL;

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint split = gl_WorkGroupID.x, set = gl_WorkGroupID.y;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    uint len = step[STEP_POS] + 1u;
    uint start = p.window != 0u && len > p.window ? len - p.window : 0u;
    uint per = max((len - start + p.splits - 1u) / p.splits, MIN_SPLIT);
    uint used = (len - start + per - 1u) / per;
    if (split >= used) return;
    uint t0 = start + split * per;
    attend(t0, min(t0 + per, len), set);
    uint row = HEAD_DIM + 2u, base = set * GROUP * p.splits * row;
    if (used > 1u) {
        for (uint e = t; e < GROUP * HEAD_DIM; e += WORKGROUP)
            store_split(e, base + split * row, p.splits * row);
        if (!arrives_last(set, base, row, used, t)) return;
    }
    for (uint first = 0u; first < GROUP * HEAD_DIM; first += WORKGROUP) {
        uint e = first + t, count = min(GROUP * HEAD_DIM - first, WORKGROUP);
        float own = 0.0;
        if (used > 1u) {
            if (first > 0u) load_parts(base, row, used, e, 0u);
            if (t < count) own = join_splits(base, row, used, e);
        } else if (t < count) {
            vec3 r = joined_subgroups(e);
            own = r.x / r.z;
        }
        quantize_values(set * GROUP * HEAD_DIM + first, count, t, own);
    }
}
