#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#define EXPERTS 1
#include "types.glsl"
#include "step.glsl"

READS(0, uvec4, x)
WEIGHT(1, w)
WRITES(2, uint, y)  // f16 pairs
READS(3, uint, step)
READS(4, uint, start)
PUSH { uint cols; uint rows; uint x_stride; uint y_stride; uint y_off;
    uint first; uint row0; uint up; PLANES(w); } p;

#define GATED
#include "blocks.glsl"
#include "matmul_coop.glsl"
