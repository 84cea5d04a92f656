#version 450
#extension GL_GOOGLE_include_directive : require
// Latent attention of a batch, causal: workgroup (token, heads) sees all positions of its token.
// build: [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

READS(0, float, q)     // (batch, heads, RANK + ROT)
READS(1, uint, k)
WRITES(2, float, y)    // (batch, heads, RANK)
READS(3, uint, step)
PUSH { uint heads; float scale; uint k_base; } p;

uint position(uint token, uint i) { return i; }
uint positions_of(uint token) { return step[STEP_POS] + token + 1u; }

#include "mla_attention.glsl"
#include "mla_prefill_store.glsl"
