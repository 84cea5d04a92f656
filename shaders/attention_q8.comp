#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Decode attention in one dispatch, result in int8 groups of 16: as attention.comp, and the
// workgroup that finishes last for its key/value head joins the splits. `arrived` counts the
// workgroups of a head that are done; the last one sets it back to zero.
// build: [F16|F32]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint GROUP = 1u;      // query heads per key/value head
layout(constant_id = 2) const uint HEAD_DIM = 64u;  // multiple of 16

READS(0, vec4, qkv)
READS(1, uvec4, k)
READS(2, uvec4, v)
SHARES(3, float, part)
SHARES(4, uint, arrived)
WRITES(5, uint, yq)
WRITES(6, vec2, ys)
READS(7, uint, step)
PUSH {
    uint n_head; uint n_head_kv; uint head_dim; uint splits; float scale; uint window;
    uint k_base; uint v_base;
} p;

const float NEVER = -1e30;
const uint MAX_SPLITS = 64u;

shared float outs[GROUP * HEAD_DIM];
shared float best[GROUP * MAX_SPLITS], weight[GROUP * MAX_SPLITS];
shared bool last;
#include "attention_sg.glsl"
#include "quant16.glsl"

// positions that a workgroup takes at once: fewer are not worth another one
const uint MIN_SPLIT = WORKGROUP / LANES * UNROLL;

// outs[] from the parts of all `used` splits of a head
void join_splits(uint kv_head, uint used, uint t) {
    uint row = HEAD_DIM + 2u, base = kv_head * GROUP * p.splits * row;
    for (uint e = t; e < GROUP * used; e += WORKGROUP) {
        uint at = base + (e / used * p.splits + e % used) * row;
        best[e] = part[at + HEAD_DIM];
        weight[e] = part[at + HEAD_DIM + 1u];
    }
    barrier();
    for (uint e = t; e < GROUP * HEAD_DIM; e += WORKGROUP) {
        uint g = e / HEAD_DIM, at = base + g * p.splits * row + e % HEAD_DIM;
        float most = NEVER, sum = 0.0, total = 0.0;
        for (uint s = 0u; s < used; s++) most = max(most, best[g * used + s]);
        for (uint s = 0u; s < used; s += 8u) {
            float v[8];  // eight loads on their way at once
            FLAT for (uint j = 0u; j < 8u; j++) v[j] = part[at + min(s + j, used - 1u) * row];
            FLAT for (uint j = 0u; j < 8u; j++) {
                uint i = g * used + min(s + j, used - 1u);
                float shrink = s + j < used ? exp(best[i] - most) : 0.0;
                sum += shrink * v[j];
                total += shrink * weight[i];
            }
        }
        outs[e] = sum / total;
    }
}

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint split = gl_WorkGroupID.x, kv_head = gl_WorkGroupID.y, t = gl_LocalInvocationID.x;
    uint len = step[STEP_POS] + 1u;
    uint start = p.window != 0u && len > p.window ? len - p.window : 0u;
    uint per = max((len - start + p.splits - 1u) / p.splits, MIN_SPLIT);
    uint used = (len - start + per - 1u) / per;
    if (split >= used) return;
    uint t0 = start + split * per;
    attend(t0, min(t0 + per, len), kv_head);
    if (used == 1u) {
        for (uint e = t; e < GROUP * HEAD_DIM; e += WORKGROUP) {
            vec3 r = joined_subgroups(e);
            outs[e] = r.x / r.z;
        }
    } else {
        uint out0 = (kv_head * GROUP * p.splits + split) * (HEAD_DIM + 2u);
        for (uint e = t; e < GROUP * HEAD_DIM; e += WORKGROUP)
            store_split(e, out0, p.splits * (HEAD_DIM + 2u));
        memoryBarrierBuffer();
        barrier();
        if (t == 0u) last = atomicAdd(arrived[kv_head], 1u) + 1u == used;
        barrier();
        if (!last) return;
        memoryBarrierBuffer();
        if (t == 0u) arrived[kv_head] = 0u;
        join_splits(kv_head, used, t);
    }
    barrier();
    quantize_outs(kv_head * GROUP * HEAD_DIM, GROUP * HEAD_DIM, t, WORKGROUP);
}
