// Sampling, second half, one workgroup: top-k, top-p, min-p, temperature, draw, bookkeeping.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "types.glsl"
#include "step.glsl"
#include "sample_common.glsl"

READS(0, uint, keys)       // (n_vocab) as sample_scan leaves them
UPDATES(1, uvec2, best)    // (groups + 1): largest key and its id; the last one is cleared
READS(2, uint, settings)
UPDATES(3, uint, step)
UPDATES(4, uint, tokens)   // word 0: input of the next step
UPDATES(5, uint, counts)   // (n_vocab)
UPDATES(6, uint, history)  // (n_ctx) id + 1 by position
UPDATES(7, uint, result)   // copy of step, then the ring of generated ids

PUSH { uint n_vocab; uint group; uint n_ctx; } p;

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128u;

#include "sample_draw.glsl"

void main() {
    read_words();
    Maxima groups = read_maxima();
    if (step[STEP_STOP] == 0u) pick(groups);
}
