#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#define ADD 1
#include "types.glsl"
#include "step.glsl"

READS(0, uvec4, x)
WEIGHT(1, w)
UPDATES(2, float, y)
READS(3, uint, step)
PUSH { uint cols; uint rows; uint x_stride; uint y_stride; uint y_off; PLANES(w); } p;

#include "blocks.glsl"
#include "dot_q8.glsl"
#include "matvec_int8.glsl"
