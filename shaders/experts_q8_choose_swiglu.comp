#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
// experts_q8_swiglu that chooses the experts: every workgroup from the router's logits as far as its
// slot asks for, the first one of the last slot writes the route.
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#define SWIGLU 1
#define CHOOSE 1
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)
READS(1, uvec4, xq)
READS(2, vec2, xs)
READS(3, float, ssq)
READS(4, float, logits)
WEIGHT(5, b)
WRITES(6, vec2, route)
WRITES(7, uint, yq)
WRITES(8, vec2, ys)
READS(9, uint, step)
PUSH { uint cols; uint rows; float eps; uint experts; uint first; uint gating; float scale;
    float sum_floor; float top_p; PLANES(b); PLANES(w); } p;

#include "blocks.glsl"
#include "dot_q8.glsl"
#include "experts_q8.glsl"
