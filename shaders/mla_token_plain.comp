#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Latent attention of one token from its plain queries, a workgroup per head: absorption, the cache's
// row, attention, v_b in int8 products, the values in int8. The cache is float16.
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)           // v_b: (heads * VALUE, RANK)
READS(1, vec4, x)      // queries (heads, NOPE + ROT)
READS(2, vec4, a)      // from `first` on: latent (RANK), key (ROT)
WEIGHT(3, kb)          // k_b: (heads * RANK, NOPE), Q8_0
WEIGHT(4, h)           // gain of the latent's norm
READS(5, vec2, rope)
UPDATES(6, uvec4, k)
WRITES(7, uint, yq)    // (heads * VALUE) values
WRITES(8, vec2, ys)
READS(9, uint, step)
layout(std430, set = 0, binding = 6) buffer k_buf_words { uint k_words[]; };
PUSH { uint first; float scale; float eps; uint k_base; PLANES(w); PLANES(kb); PLANES(h); } p;
#define FIRST p.first

#include "blocks.glsl"
#include "dot_q8.glsl"
#include "mla_token.glsl"
