#version 450
#extension GL_GOOGLE_include_directive : require
// As mla_query.comp, for models whose queries are not compressed: a holds the heads' queries.
// build: [KB16|KB32] [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

READS(0, float, a)     // queries (heads, nope + n_rot), latent (rank), key (n_rot)
WEIGHT(1, kb)          // k_b: (heads * rank, nope) in F16 (KB16) or F32
WEIGHT(2, h)           // gain of the latent's norm
READS(3, vec2, rope)
WRITES(4, float, q)    // (heads, rank + n_rot)
UPDATES(5, uint, k)
READS(6, uint, step)
PUSH { uint rank; uint nope; uint n_rot; uint heads; float eps; uint k_base; PLANES(kb);
    PLANES(h); } p;

#define NO_PRODUCT
#include "mla_query.glsl"

void main() {
    uint t = gl_LocalInvocationID.x, head = gl_WorkGroupID.x / PARTS, pos = step[STEP_POS];
    if (step[STEP_STOP] != 0u) return;
    if (head >= p.heads) {
        write_latent(pos, 0u, p.heads * HEAD, t);
        return;
    }
    for (uint i = t; i < HEAD; i += WORKGROUP) query[i] = a[head * HEAD + i];
    barrier();
    absorb(head, gl_WorkGroupID.x % PARTS, t);
    if (gl_WorkGroupID.x % PARTS == 0u) rotate_query(head, pos, t);
}
