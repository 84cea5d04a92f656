#version 450
#extension GL_GOOGLE_include_directive : require
// Splits of latent attention joined and turned into the heads' values.
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"

READS(0, float, part)  // (heads, splits, RANK + 2)
WEIGHT(1, w)           // v_b: (heads * rows, RANK)
WRITES(2, float, y)    // (heads, rows)
READS(3, uint, step)
PUSH { uint rows; uint splits; uint most; PLANES(w); } p;

#include "blocks.glsl"
#include "mla_values.glsl"

void main() {
    uint t = gl_LocalInvocationID.x, head = gl_WorkGroupID.x / PARTS;
    if (step[STEP_STOP] != 0u) return;
    uint row0 = head * p.rows + gl_WorkGroupID.x % PARTS * ROWS;
    join_splits(head, t);
    rows_of_values(row0, t);
    for (uint r = t; r < ROWS; r += WORKGROUP) y[row0 + r] = row_of_values(r);
}
