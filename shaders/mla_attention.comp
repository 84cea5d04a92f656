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
PUSH { uint heads; uint splits; float scale; uint k_base; } p;

uint position(uint token, uint i) { return i; }

#include "mla_attention.glsl"
#include "mla_splits.glsl"

void main() {
    uint t = gl_LocalInvocationID.x, split = gl_WorkGroupID.x, head = gl_WorkGroupID.y * HEADS;
    if (step[STEP_STOP] != 0u) return;
    uint len = step[STEP_POS] + 1u, per = split_length(len);
    if (split * per >= len) return;
    attend(0u, head, p.heads, split * per, min((split + 1u) * per, len), t);
    FLAT for (uint h = 0u; h < HEADS; h++) {
        if (head + h >= p.heads) break;
        uint at = ((head + h) * p.splits + split) * (RANK + 2u);
        FLAT for (uint j = 0u; j < PAIRS; j++) {
            uint i = t + j * WORKGROUP;
            if (i >= RANK / 2u) break;
            part[at + 2u * i] = sums[h * PAIRS + j].x;
            part[at + 2u * i + 1u] = sums[h * PAIRS + j].y;
        }
        if (t == 0u) {
            part[at + RANK] = most[h];
            part[at + RANK + 1u] = total[h];
        }
    }
}
