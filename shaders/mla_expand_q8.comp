#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Splits of latent attention joined and turned into the heads' values: the joined latents in int8
// groups of 16 times v_b, the values in int8 as well.
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"

READS(0, vec2, part)   // (heads, splits, RANK + 2)
WEIGHT(1, w)           // v_b: (heads * rows, RANK)
WRITES(2, uint, yq)
WRITES(3, vec2, ys)
READS(4, uint, step)
PUSH { uint rows; uint splits; uint most; PLANES(w); } p;

#include "blocks.glsl"
#include "dot_q8.glsl"
#include "mla_splits.glsl"
#include "mla_expand_q8.glsl"
