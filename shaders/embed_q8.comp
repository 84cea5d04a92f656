#version 450
#extension GL_GOOGLE_include_directive : require
// The row of the embedding matrix for a single token, and the row times a gain as int8 groups of
// 16. One invocation per group.
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

READS(0, uint, tokens)
WEIGHT(1, w)
WEIGHT(2, g)
UPDATES(3, vec4, x)
WRITES(4, uvec4, yq)
WRITES(5, vec2, ys)
WRITES(6, float, ssq)
READS(7, uint, step)
// w holds the vocabulary rows [row0, row0 + rows): other tokens are another dispatch's
PUSH { uint n_embd; uint row0; uint rows; float scale; PLANES(g); PLANES(w); } p;

#include "blocks.glsl"
#include "embed_row.glsl"

void main() {
    uint i = gl_GlobalInvocationID.x;
    uint row = tokens[0] - p.row0;  // wraps to a large number below row0
    if (step[STEP_STOP] != 0u || i >= p.n_embd / 16u || row >= p.rows) return;
    embed_group(row, i);
}
