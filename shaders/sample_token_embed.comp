// The end of a token in one dispatch: sample_scan in every workgroup; in the one that finishes last
// sample_pick, then embed_q8 of the token drawn: the next step begins with its layers.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"
#include "sample_common.glsl"

READS(0, float, logits)    // 0 … 8 as in sample_scan and sample_pick
READS(1, uint, settings)
UPDATES(2, uint, counts)
SHARES(3, uint, step)
SHARES(4, uint, keys)
SHARES(5, uvec2, best)
UPDATES(6, uint, tokens)
UPDATES(7, uint, history)
UPDATES(8, uint, result)
WEIGHT(9, w)               // the row of every token
WEIGHT(10, g)
UPDATES(11, vec4, x)
WRITES(12, uvec4, yq)
WRITES(13, vec2, ys)
WRITES(14, float, ssq)

PUSH { uint n_vocab; uint group; uint n_ctx; uint n_embd; float scale; PLANES(g); PLANES(w); } p;

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128u;

#include "sample_scan.glsl"
#include "sample_draw.glsl"
#include "blocks.glsl"
#include "embed_row.glsl"

const uint STEP_ARRIVED = 9u; // engine/step.py

shared bool last;

void main() {
    read_words();
    Scanned ids = read_logits();
    if (step[STEP_STOP] != 0u) return;
    scan_ids(ids);
    memoryBarrierBuffer();
    barrier();
    if (lane == 0u) last = atomicAdd(step[STEP_ARRIVED], 1u) + 1u == gl_NumWorkGroups.x;
    barrier();
    if (!last) return;
    memoryBarrierBuffer();
    if (lane == STEP_BAD) word = step[STEP_BAD]; // other workgroups have added to it
    if (lane == STEP_ARRIVED) word = 0u;
    Maxima maxima = read_maxima();
    if (!pick(maxima)) return;
    // the first invocations come last: they write what the token changes
    uint groups = p.n_embd / 16u;
    for (uint i = (lane + THREADS - 32u) % THREADS; i < groups; i += THREADS)
        embed_group(found_id, i);
}
