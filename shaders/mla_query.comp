#version 450
#extension GL_GOOGLE_include_directive : require
// Queries of one token for latent attention: norm of the compressed query, its head's rows of q_b,
// and those of them without position times k_b, so that they meet the latent cache itself. PARTS
// workgroups share a head's rows of k_b; each makes the head's query anew, which costs less than
// another dispatch. The workgroup behind them writes the cache: normalised latent, rotated key.
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
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
    barrier();
    bool first = gl_WorkGroupID.x % PARTS == 0u;
    head_query(head, first ? p.nope + p.n_rot : p.nope, t);
    absorb(head, gl_WorkGroupID.x % PARTS, t);
    if (first) rotate_query(head, pos, t);
}
