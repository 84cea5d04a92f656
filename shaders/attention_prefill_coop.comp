#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require
// Causal attention of a batch over the cache on matrix cores, y in f16 or f32: one workgroup per
// (query rows, query head), TM rows per subgroup, BT positions at a time with an online softmax
// (FlashAttention, Dao et al. 2022).
// build: [F16|ANY] [HALF|WIDE]
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, qkv)
CACHE(1, k)
CACHE(2, v)
#ifdef HALF
WRITES(3, uint, y)
#else
WRITES(3, float, y)
#endif
READS(4, uint, step)
PUSH {
    uint n_head; uint n_head_kv; uint head_dim; float scale; uint window;
    float softcap;
    uint k_base; uint v_base;
} p;

#include "attention_prefill_coop.glsl"
