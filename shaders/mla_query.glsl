// Pieces of the kernels that prepare latent attention: cache rows, head queries, absorption.
// A cache row is the normalised latent (rank values), then the rotated key (n_rot).
//
// spec: 0 workgroup, 1 PARTS (workgroups per head), 2 COLS (of q_b), 3 HEAD (nope + n_rot),
// 4 LANES (per row), 5 TOGETHER (rows of an invocation at once); where q_b is multiplied, 6 whether
// k_b is F16, 7 whether the cache is: builds for them as well would be four for each format
// Shared memory: 4 * (COLS + HEAD + LANES * HEAD) bytes, LANES * HEAD at least WORKGROUP.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint PARTS = 1u;
layout(constant_id = 2) const uint COLS = 32u;
layout(constant_id = 3) const uint HEAD = 64u;
layout(constant_id = 4) const uint LANES = 8u;
layout(constant_id = 5) const uint TOGETHER = 1u;

#ifndef NO_PRODUCT
layout(constant_id = 6) const uint KB_IS_F16 = 1u;
layout(constant_id = 7) const uint KV_IS_F16 = 1u;
#define HALF_KB (KB_IS_F16 == 1u)
#define HALF_KV (KV_IS_F16 == 1u)
shared float x[COLS];
#endif
shared float query[HEAD], partial[LANES * HEAD];
const uint STEP = WORKGROUP / LANES;

#include "mla_cache.glsl"

#ifndef NO_PRODUCT
// Adds the products of rows r, r + STEP, … with chunk c of x; rows past the end are the last one
void add_chunk(uint row0, uint r, uint rows, uint c, inout float sum[TOGETHER]) {
    uint chunks = p.cols / 32u, ca = chunk_a(c), cb = chunk_b(c);
    vec4 xa[4], xb[4], ta = vec4(0.0), tb = vec4(0.0);
    FLAT for (uint i = 0u; i < 4u; i++) {
        FLAT for (uint j = 0u; j < 4u; j++) {
            xa[i][j] = x[ca + 4u * i + j];
            xb[i][j] = x[cb + 4u * i + j];
        }
        ta += xa[i];
        tb += xb[i];
    }
    vec2 sums = vec2(dot(ta, vec4(1.0)), dot(tb, vec4(1.0)));
    FLAT for (uint u = 0u; u < TOGETHER; u++)
        sum[u] += chunk_dot((row0 + min(r + u * STEP, rows - 1u)) * chunks + c, xa, xb, sums);
}
#endif

#ifndef HALF_KB
#ifdef KB16
#define HALF_KB true
#else
#define HALF_KB false
#endif
#endif

#ifndef NO_PRODUCT
// The head's rows of q_b, the first `rows` of them, times x; TOGETHER rows of an invocation at once
// keep enough loads in flight.
void head_query(uint head, uint rows, uint t) {
    uint lane = t % LANES;
    for (uint r = t / LANES; r < rows; r += TOGETHER * STEP) {
        float sum[TOGETHER];
        FLAT for (uint u = 0u; u < TOGETHER; u++) sum[u] = 0.0;
        for (uint c = lane; c < p.cols / 32u; c += LANES) add_chunk(head * HEAD, r, rows, c, sum);
        FLAT for (uint u = 0u; u < TOGETHER; u++)
            if (r + u * STEP < rows) partial[(r + u * STEP) * LANES + lane] = sum[u];
    }
    barrier();
    for (uint r = t; r < rows; r += WORKGROUP) {
        float sum = 0.0;
        for (uint i = 0u; i < LANES; i++) sum += partial[r * LANES + i];
        query[r] = sum;
    }
    barrier();
}
#endif

// 8 values of k_b from value `at` on (a multiple of 8) times the query from `i` on
float kb_dot8(uint at, uint i) {
    vec4 lo, hi;
    if (HALF_KB) {
        uvec4 v = kb4[p.kb_p0 / 4u + at / 8u];
        lo = vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y));
        hi = vec4(unpackHalf2x16(v.z), unpackHalf2x16(v.w));
    } else {
        lo = uintBitsToFloat(kb4[p.kb_p0 / 4u + at / 4u]);
        hi = uintBitsToFloat(kb4[p.kb_p0 / 4u + at / 4u + 1u]);
    }
    return dot(lo, vec4(query[i], query[i + 1u], query[i + 2u], query[i + 3u]))
        + dot(hi, vec4(query[i + 4u], query[i + 5u], query[i + 6u], query[i + 7u]));
}

// Part `part` of the head's rows of k_b times the query without position: what meets the latent
void absorb(uint head, uint part, uint t) {
    const uint L = 4u;
    uint lane = t % L, per = (p.rank + PARTS - 1u) / PARTS, stop = min((part + 1u) * per, p.rank);
    for (uint r0 = part * per; r0 < stop; r0 += WORKGROUP / L) {
        uint r = r0 + t / L;
        float sum = 0.0;
        if (r < stop)
            for (uint i = lane * 8u; i < p.nope; i += L * 8u)
                sum += kb_dot8((head * p.rank + r) * p.nope + i, i);
        barrier();
        partial[t] = sum;
        barrier();
        if (lane == 0u && r < stop)
            q[head * (p.rank + p.n_rot) + r] =
                partial[t] + partial[t + 1u] + partial[t + 2u] + partial[t + 3u];
    }
}

// The part of the query with position, turned
void rotate_query(uint head, uint pos, uint t) {
    uint to = head * (p.rank + p.n_rot) + p.rank;
    for (uint i = t; i < p.n_rot / 2u; i += WORKGROUP) {
        vec2 v = turned(pos, i, vec2(query[p.nope + 2u * i], query[p.nope + 2u * i + 1u]));
        q[to + 2u * i] = v.x;
        q[to + 2u * i + 1u] = v.y;
    }
}
