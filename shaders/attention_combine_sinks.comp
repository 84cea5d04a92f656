#version 450
#extension GL_GOOGLE_include_directive : require
// As attention_combine.comp, with a score per head that takes part in the softmax and has no value.
#define SINKS 1
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;

READS(0, float, part)
WRITES(1, float, y)
READS(2, uint, step)
WEIGHT(3, sinks)
PUSH { uint n_head; uint head_dim; uint splits; PLANES(sinks); } p;

#include "attention_combine.glsl"
