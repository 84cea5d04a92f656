#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Causal attention of a batch over the cache: one workgroup per (BQ query rows, query head),
// BT positions at a time with an online softmax (FlashAttention, Dao et al. 2022).
// build: [F16|ANY]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;  // a multiple of BT and of BQ
layout(constant_id = 1) const uint BQ = 8u;
layout(constant_id = 2) const uint BT = 16u;
layout(constant_id = 3) const uint HEAD_DIM = 64u;
#ifdef ANY
layout(constant_id = 4) const uint K_TYPE = 0u;
layout(constant_id = 5) const uint V_TYPE = 0u;
#endif
layout(constant_id = 6) const uint RING = 0u;  // rows of the caches (cache.glsl)

READS(0, vec4, qkv)
CACHE(1, k)
CACHE(2, v)
WRITES(3, vec4, y)
READS(4, uint, step)
PUSH {
    uint n_head; uint n_head_kv; uint head_dim; float scale; uint window;
    float softcap;
    uint k_base; uint v_base;
} p;

#include "attention_prefill.glsl"
