// Keeps the penalty window up to date for a batch of prompt tokens (sample_pick does so for drawn
// ones): history[position] = id + 1, 0 where no token was; counts[id] = occurrences in the window.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step.glsl"
#include "sample_common.glsl"

READS(0, uint, step)
READS(1, uint, tokens)     // (batch)
READS(2, uint, settings)
UPDATES(3, uint, counts)   // (n_vocab)
UPDATES(4, uint, history)  // (n_ctx)

PUSH { uint n_vocab; uint n_ctx; } p;

layout(local_size_x_id = 0) in;

void main() {
    uint window = settings[SET_WINDOW];
    uint i = gl_GlobalInvocationID.x;
    if (step[STEP_STOP] != 0u || window == 0u || i >= step[STEP_N]) return;
    uint pos = step[STEP_POS] + i;
    if (pos >= p.n_ctx || tokens[i] >= p.n_vocab) return;
    uint old = history[pos];
    history[pos] = tokens[i] + 1u;
    // Tokens of this batch that the window has passed by its end are never counted.
    if (step[STEP_N] - i <= window) atomicAdd(counts[tokens[i]], 1u);
    if (old != 0u) { // a drawn token that is fed now: it was counted when it was drawn
        atomicAdd(counts[old - 1u], ~0u);
    } else if (pos >= window && pos - window < step[STEP_POS] && history[pos - window] != 0u) {
        atomicAdd(counts[history[pos - window] - 1u], ~0u);
    }
}
