#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require
// As mla_attention.comp over a float16 cache, on matrix cores: a workgroup takes HEADS heads, which
// share each tile of cache rows, and one split of the positions.
#include "types.glsl"
#include "step.glsl"

READS(0, vec2, q)      // (heads, RANK + ROT)
CACHE(1, k)
WRITES(2, vec2, part)  // (heads, splits, RANK + 2)
READS(3, uint, step)
PUSH { uint heads; uint splits; float scale; uint most; uint k_base; } p;

#include "mla_splits.glsl"
#include "mla_attention_coop.glsl"
