#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4] [KV16|KV32]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64] [KV16|KV32]
#define NORM 1
#define ROPE 1
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)
READS(1, uvec4, xq)
READS(2, vec2, xs)
READS(3, float, ssq)
UPDATES(4, float, y)
READS(5, vec2, rope)
UPDATES(6, uint, k)
UPDATES(7, uint, v)
READS(8, uint, step)
PUSH { uint cols; uint rows; uint y_off; float eps;
    uint n_head; uint n_head_kv; uint head_dim; uint n_rot; uint k_base; uint v_base;
    PLANES(w); } p;

// behind those of matvec_q8.glsl
layout(constant_id = 6) const uint RING = 0u;  // rows of the caches (cache.glsl)

#include "blocks.glsl"
#include "dot_q8.glsl"
#include "matvec_q8.glsl"
