#version 450
#extension GL_GOOGLE_include_directive : require
// build: [KV16|ANY]
#include "types.glsl"
#include "step.glsl"

UPDATES(0, float, qkv)
READS(1, vec2, rope)
UPDATES(2, uint, k)
UPDATES(3, uint, v)
READS(4, uint, step)
PUSH { uint n_head; uint n_head_kv; uint head_dim; uint n_rot; uint k_base; uint v_base; } p;

#include "rope_kv.glsl"
