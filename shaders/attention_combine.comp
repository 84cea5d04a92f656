#version 450
#extension GL_GOOGLE_include_directive : require
// Joins the partial softmaxes of the splits: one workgroup per query head.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;

READS(0, float, part)
WRITES(1, float, y)
READS(2, uint, step)
PUSH { uint n_head; uint head_dim; uint splits; } p;

#include "attention_combine.glsl"
