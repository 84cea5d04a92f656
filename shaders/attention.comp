#version 450
#extension GL_GOOGLE_include_directive : require
#ifdef SG1
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Decode attention, split over the context: one workgroup per (split, set of query heads): the
// GROUP heads of a set share a key/value head, so that keys and values are read once. Writes the
// unnormalised sum of values, the maximum and the sum of exponentials per query head and split
// (online softmax, Milakov and Gimelshein 2018; splits as in Flash-Decoding, Dao et al. 2023).
// build: [F16|ANY] [SG0|SG1]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint GROUP = 1u;      // query heads of a workgroup, of one key/value head
layout(constant_id = 2) const uint HEAD_DIM = 64u;  // multiple of 4
#ifdef ANY
layout(constant_id = 6) const uint K_TYPE = 0u;
layout(constant_id = 7) const uint V_TYPE = 0u;
#endif
layout(constant_id = 8) const uint RING = 0u;  // rows of the caches (cache.glsl)

READS(0, vec4, qkv)
CACHE(1, k)
CACHE(2, v)
WRITES(3, float, part)
READS(4, uint, step)
PUSH {
    uint n_head; uint n_head_kv; uint head_dim; uint splits; float scale; uint window;
    float softcap;
    uint k_base; uint v_base;
} p;

const float NEVER = -1e30;     // finite, so that differences stay finite
const uint MIN_SPLIT = 32u;    // positions that are worth a workgroup

#include "cache_read.glsl"
#include "softcap.glsl"

// The key/value head of a set of GROUP query heads
uint kv_head(uint set) { return set * GROUP / (p.n_head / p.n_head_kv); }

#ifdef SG1
#include "attention_sg.glsl"
#else
#include "attention_shared.glsl"
#endif

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint split = gl_WorkGroupID.x, set = gl_WorkGroupID.y, t = gl_LocalInvocationID.x;
    uint len = step[STEP_POS] + 1u;
    uint start = p.window != 0u && len > p.window ? len - p.window : 0u;
    uint per = max((len - start + p.splits - 1u) / p.splits, MIN_SPLIT);
    uint t0 = start + split * per, t1 = min(t0 + per, len);
    uint out0 = (set * GROUP * p.splits + split) * (HEAD_DIM + 2u);
    uint out_step = p.splits * (HEAD_DIM + 2u);
    if (t0 >= t1) {
        for (uint g = t; g < GROUP; g += WORKGROUP) {
            part[out0 + g * out_step + HEAD_DIM] = NEVER;
            part[out0 + g * out_step + HEAD_DIM + 1u] = 0.0;
        }
        return;
    }
#ifdef SG1
    attend(t0, t1, set);
    for (uint e = t; e < GROUP * HEAD_DIM; e += WORKGROUP) store_split(e, out0, out_step);
#else
    attend(t0, t1, set, out0, out_step);
#endif
}
