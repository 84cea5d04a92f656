#version 450
#extension GL_GOOGLE_include_directive : require
// Absorbed queries of one token from plain ones, and the row of the cache, which a workgroup of
// its own writes: normalised latent, rotated key.
// build: [KB16|KB32] [KV16|KV32] [SG0|SG1]
#ifdef SG1
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "types.glsl"
#include "step.glsl"

#ifdef SG1
READS(0, vec2, x)      // queries (heads, nope + n_rot)
#else
READS(0, float, x)
#endif
READS(1, float, a)     // from `first` on: latent (rank), key (n_rot)
WEIGHT(2, kb)          // k_b: (heads * rank, nope) in F16 (KB16) or F32
WEIGHT(3, h)           // gain of the latent's norm
READS(4, vec2, rope)
WRITES(5, float, q)    // (heads, rank + n_rot)
UPDATES(6, uint, k)
READS(7, uint, step)
PUSH { uint rank; uint nope; uint n_rot; uint heads; uint first; float eps; uint k_base;
    PLANES(kb); PLANES(h); } p;

#ifdef SG1
#include "mla_absorb_rows.glsl"
#else
#define NO_PRODUCT
#include "mla_query.glsl"

void main() {
    uint t = gl_LocalInvocationID.x, head = gl_WorkGroupID.x / PARTS, pos = step[STEP_POS];
    if (step[STEP_STOP] != 0u) return;
    if (head >= p.heads) {
        write_latent(pos, 0u, p.first, t);
        return;
    }
    for (uint i = t; i < HEAD; i += WORKGROUP) query[i] = x[head * HEAD + i];
    barrier();
    absorb(head, gl_WorkGroupID.x % PARTS, t);
    if (gl_WorkGroupID.x % PARTS == 0u) rotate_query(head, pos, t);
}
#endif
