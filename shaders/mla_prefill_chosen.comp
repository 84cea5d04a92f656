#version 450
#extension GL_GOOGLE_include_directive : require
// As mla_prefill.comp, over the positions that dsa_select.comp has chosen, if there are more than
// `most`.
// build: [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

READS(0, float, q)     // (batch, heads, RANK + ROT)
READS(1, uint, k)
WRITES(2, float, y)    // (batch, heads, RANK)
READS(3, uint, step)
READS(4, uint, chosen) // (batch, most)
PUSH { uint heads; float scale; uint most; uint k_base; } p;

uint positions_of(uint token) { return min(step[STEP_POS] + token + 1u, p.most); }
uint position(uint token, uint i) {
    return step[STEP_POS] + token < p.most ? i : chosen[token * p.most + i];
}

#include "mla_attention.glsl"
#include "mla_prefill_store.glsl"
