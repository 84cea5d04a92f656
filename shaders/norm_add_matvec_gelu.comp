#version 450
#extension GL_GOOGLE_include_directive : require
#ifdef SG1
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K] [SG0|SG1]
// build: [Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4] [SG0|SG1]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64] [SG0|SG1]
#define PLUS 1
#define GEGLU 1
#include "types.glsl"
#include "step.glsl"

READS(0, vec4, x)
READS(1, vec4, z)
WEIGHT(2, w)
WRITES(3, float, y)
READS(4, float, e)
READS(5, uint, step)
WEIGHT(6, g)
PUSH {
    uint cols; uint rows; uint y_off; float eps; uint e_off; uint e_cols;
    PLANES(w); PLANES(g);
} p;

#include "blocks.glsl"
#include "matvec.glsl"
