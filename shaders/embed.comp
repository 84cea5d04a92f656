#version 450
#extension GL_GOOGLE_include_directive : require
// Rows of the embedding matrix for the tokens of a batch: one workgroup per token.
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;

READS(0, uint, tokens)
WEIGHT(1, w)
UPDATES(2, vec4, x)
READS(3, uint, step)
// w holds the vocabulary rows [row0, row0 + rows): other tokens are another dispatch's
PUSH { uint n_embd; uint row0; uint rows; float scale; PLANES(w); } p;

#include "blocks.glsl"

void main() {
    uint i = gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u || i >= step[STEP_N]) return;
    uint row = tokens[i] - p.row0;  // wraps to a large number below row0
    if (row >= p.rows) return;
    uint chunks = p.n_embd / 32u;
    for (uint c = gl_LocalInvocationID.x; c < chunks; c += WORKGROUP) {
        vec4 a[4], b[4];
        chunk_values(row * chunks + c, a, b);
        uint at = i * (p.n_embd / 4u);
        for (uint k = 0u; k < 4u; k++) {
            x[at + chunk_a(c) / 4u + k] = a[k] * p.scale;
            x[at + chunk_b(c) / 4u + k] = b[k] * p.scale;
        }
    }
}
