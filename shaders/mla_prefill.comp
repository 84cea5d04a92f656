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

#include "mla_attention.glsl"

void main() {
    uint t = gl_LocalInvocationID.x, token = gl_WorkGroupID.x, head = gl_WorkGroupID.y * HEADS;
    if (step[STEP_STOP] != 0u || token >= step[STEP_N]) return;
    attend(token, head, p.heads, 0u, step[STEP_POS] + token + 1u, t);
    FLAT for (uint h = 0u; h < HEADS; h++) {
        if (head + h >= p.heads) break;
        uint at = (token * p.heads + head + h) * RANK;
        FLAT for (uint j = 0u; j < PAIRS; j++) {
            uint i = t + j * WORKGROUP;
            if (i >= RANK / 2u) break;
            vec2 v = sums[h * PAIRS + j] / total[h];
            y[at + 2u * i] = v.x;
            y[at + 2u * i + 1u] = v.y;
        }
    }
}
