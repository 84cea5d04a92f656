#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// The first products of latent attention, y = W x / rms: compressed query, latent, key. The first
// `width` values, the compressed query, also leave as q8 of value * g with their sums of squares, so
// that the product behind their norm is a norm_matvec_q8.
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#define NORM 1
#define COMPRESS 1
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)
READS(1, uvec4, xq)
READS(2, vec2, xs)
READS(3, float, ssq)
WEIGHT(4, g)
WRITES(5, float, y)
WRITES(6, uint, yq)
WRITES(7, vec2, ys)
WRITES(8, float, squares_of)
READS(9, uint, step)
PUSH { uint cols; uint rows; uint y_off; uint width; float eps; PLANES(g); PLANES(w); } p;
#define SQUARES squares_of

#include "blocks.glsl"
#include "dot_q8.glsl"
#include "matvec_q8.glsl"
