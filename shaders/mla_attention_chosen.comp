#version 450
#extension GL_GOOGLE_include_directive : require
// As mla_attention.comp, over the positions that dsa_select.comp has chosen, if there are more than
// `most`.
// build: [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

READS(0, float, q)     // (heads, RANK + ROT)
READS(1, uint, k)
WRITES(2, float, part) // (heads, splits, RANK + 2)
READS(3, uint, step)
READS(4, uint, chosen) // (batch, most)
PUSH { uint heads; uint splits; float scale; uint most; uint k_base; } p;

uint position(uint token, uint i) { return step[STEP_POS] < p.most ? i : chosen[i]; }

#include "mla_attention.glsl"
#include "mla_splits.glsl"
#include "mla_attention_store.glsl"
