// Products of rows of weights with the vector of narrow_vector.glsl. Their chunks are loaded before
// the vector is there: a group of lanes takes some rows, a lane OWN chunks of each.
// Formats whose chunks have one scale. The including shader declares w and its planes.

#include "blocks.glsl"
#include "matmul_coop_fetch.glsl"
#include "dot4.glsl"

// Product of chunk c, number g of its matrix, with groups x and x + 1 of the vector (dot_q8.glsl)
float chunk_product(Chunk c, uint g, uint x) {
    uvec4 a, b;
    chunk_bytes_of(g, c, a, b);
    vec4 s = chunk_scales_of(g, c);
    vec2 za = xs[x], zb = xs[x + 1u];
    float da = float(dot16(a, xq[x])) * za.x - QUANT_OFFSET * za.y;
    float db = float(dot16(b, xq[x + 1u])) * zb.x - QUANT_OFFSET * zb.y;
#ifdef MINIMA
    return s.x * (da + db) + s.y * (za.y + zb.y);
#else
    return s.x * (da + db);
#endif
}

// Chunks of ROWS rows into TO, for invocation t. FETCH: reads a chunk by its number; FIRST: number
// of the first chunk of row r; COUNT: chunks of a row that are used
#define LOAD_ROWS(TO, FETCH, ROWS, OWN, COUNT, LANES_, FIRST) \
    FLAT for (uint r = 0u; r < ROWS; r++) \
        FLAT for (uint i = 0u; i < OWN; i++) \
            TO[r * OWN + i] = FETCH(FIRST + min(t % LANES_ + i * LANES_, COUNT - 1u));

// Their products with the vector from group X on, in all lanes of a group
#define MULTIPLY_ROWS(SUMS, OF, ROWS, OWN, COUNT, LANES_, FIRST, X) \
    FLAT for (uint r = 0u; r < ROWS; r++) { \
        SUMS[r] = 0.0; \
        FLAT for (uint i = 0u; i < OWN; i++) { \
            uint c = t % LANES_ + i * LANES_, at = min(c, COUNT - 1u); \
            float own = chunk_product(OF[r * OWN + i], FIRST + at, X + 2u * at); \
            SUMS[r] += c < COUNT ? own : 0.0; \
        } \
    } \
    for (uint lanes = LANES_ / 2u; lanes > 0u; lanes /= 2u) \
        FLAT for (uint r = 0u; r < ROWS; r++) SUMS[r] += subgroupShuffleXor(SUMS[r], lanes);
