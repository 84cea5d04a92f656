#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// Latent attention of one token from its compressed query, a workgroup per head: mla_token_plain with
// norm and q_b before it. Each workgroup quantizes the compressed query anew.
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#define QUERY 1
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)           // v_b: (heads * VALUE, RANK), then q_b: (heads * (NOPE + ROT), Q_RANK)
READS(1, vec4, a)      // compressed query (Q_RANK), latent (RANK), key (ROT)
WEIGHT(2, kb)          // k_b: (heads * RANK, NOPE), Q8_0
WEIGHT(3, h)           // gains of the query's norm, then of the latent's
READS(4, vec2, rope)
UPDATES(5, uvec4, k)
WRITES(6, uint, yq)    // (heads * VALUE) values
WRITES(7, vec2, ys)
READS(8, uint, step)
layout(std430, set = 0, binding = 5) buffer k_buf_words { uint k_words[]; };
PUSH { float scale; float eps; uint k_base; PLANES(w); PLANES(kb); PLANES(h); } p;
#define FIRST Q_RANK

#include "blocks.glsl"
#include "dot_q8.glsl"
#include "mla_token.glsl"
