#version 450
#extension GL_GOOGLE_include_directive : require
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, x)
WEIGHT(1, w)
READS(2, vec2, route)
UPDATES(3, float, y)
READS(4, uint, step)
PUSH { uint cols; uint rows; uint experts; uint first; PLANES(w); } p;

#include "blocks.glsl"
#include "experts.glsl"
