#version 450
#extension GL_GOOGLE_include_directive : require
// Latent attention of one token over one split of its positions: sums of latents, the largest
// score, the sum of exponentials, for mla_values.comp to join.
// build: [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

READS(0, float, q)     // (heads, RANK + ROT)
READS(1, uint, k)
WRITES(2, float, part) // (heads, splits, RANK + 2)
READS(3, uint, step)
PUSH { uint heads; uint splits; float scale; uint most; uint k_base; } p;

uint position(uint token, uint i) { return i; }

#include "mla_attention.glsl"
#include "mla_splits.glsl"
#include "mla_attention_store.glsl"
