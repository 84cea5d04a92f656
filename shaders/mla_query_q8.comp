#version 450
#extension GL_GOOGLE_include_directive : require
// As mla_query.comp, with the compressed query in int8 groups of 16.
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#define Q8 1
#include "types.glsl"
#include "step.glsl"

READS(0, float, a)     // compressed query (q_rank), latent (rank), key (n_rot)
WEIGHT(1, g)           // gain of the query's norm
WEIGHT(2, w)           // q_b: (heads * (nope + n_rot), cols)
WEIGHT(3, kb)          // k_b: (heads * rank, nope) in F16 (HALF_KB) or F32
WEIGHT(4, h)           // gain of the latent's norm
READS(5, vec2, rope)
WRITES(6, float, q)    // (heads, rank + n_rot)
UPDATES(7, uint, k)
READS(8, uint, step)
PUSH { uint cols; uint q_rank; uint rank; uint nope; uint n_rot; uint heads; float eps;
    uint k_base; PLANES(g); PLANES(w); PLANES(kb); PLANES(h); } p;

#include "blocks.glsl"
#include "dot_q8.glsl"
#include "mla_query.glsl"

void main() {
    uint t = gl_LocalInvocationID.x, head = gl_WorkGroupID.x / PARTS, pos = step[STEP_POS];
    if (step[STEP_STOP] != 0u) return;
    if (head >= p.heads) {
        write_latent(pos, 0u, p.q_rank, t);
        return;
    }
    float scale = inverse_rms(0u, p.q_rank, t);
    for (uint i = t; i < COLS; i += WORKGROUP)
        x[i] = i < p.q_rank ? a[i] * scale * uintBitsToFloat(g[p.g_p0 + i]) : 0.0;
    quantize_x(t);
    bool first = gl_WorkGroupID.x % PARTS == 0u;
    head_query(head, first ? p.nope + p.n_rot : p.nope, t);
    absorb(head, gl_WorkGroupID.x % PARTS, t);
    if (first) rotate_query(head, pos, t);
}
