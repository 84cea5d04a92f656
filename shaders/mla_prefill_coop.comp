#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require
// Latent attention of a batch, causal, on matrix cores: BM rows of (token, head) per workgroup, which
// all see the same cache rows in float16, y in f16 or f32.
// build: [HALF|WIDE]
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, q)      // (batch, heads, RANK + ROT)
CACHE(1, k)
#ifdef HALF
WRITES(2, uint, y)     // (batch, heads, RANK)
#else
WRITES(2, float, y)
#endif
READS(3, uint, step)
PUSH { uint heads; float scale; uint k_base; } p;

#include "mla_prefill_coop.glsl"
