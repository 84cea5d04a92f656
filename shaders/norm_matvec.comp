#version 450
#extension GL_GOOGLE_include_directive : require
#ifdef SG1
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K] [SG0|SG1]
// build: [Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4] [SG0|SG1]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S] [SG0]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64] [SG0|SG1]
#define NORM 1
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, x)
WEIGHT(1, w)
WRITES(2, float, y)
READS(3, uint, step)
WEIGHT(4, g)
PUSH { uint cols; uint rows; uint y_stride; uint y_off; float eps; PLANES(w); PLANES(g); } p;

#include "blocks.glsl"
#include "matvec.glsl"
