// Decoding of weight formats in chunks of 32 values: the unit of work of mat-vec, matmul, embed.
//
// Chunk c of a row is two groups of 16 values, at columns chunk_a(c) and chunk_b(c). Chunk g of
// the whole matrix (g = row * cols / 32 + c) has its 4-bit quants in one 16-byte vector of plane 0.
// A value is scale * quant + minimum, both per group: chunk_scales(g) = (scale a, min a, scale b,
// min b). Layouts: ggml-quants.h of llama.cpp, split into the planes of engine/blocks.py.
// The including shader declares WEIGHT(_, w) and the plane offsets p.w_p0 … p.w_p3 (in words).
//
// Formats of files blocks_*.glsl come as Chunk (the words of a chunk), chunk_fetch, chunk_bytes_of
// and chunk_scales_of, the form of matmul_coop_fetch.glsl; everything else follows from these.

// what is true of a format, for all shaders
#if defined(Q2_K) || defined(Q3_K) || defined(TQ2_0)
#define BLOCKS_K 1
#elif defined(IQ4_NL) || defined(IQ4_XS) || defined(MXFP4) || defined(NVFP4)
#define BLOCKS_CODES 1
#elif defined(IQ2_XXS) || defined(IQ2_XS) || defined(IQ2_S) || defined(IQ3_XXS) || defined(IQ3_S)
#define BLOCKS_GRID 1
#define BLOCKS_SIGNED 1
#elif defined(IQ1_S) || defined(IQ1_M)
#define BLOCKS_GRID 1
#elif defined(TQ1_0)
#define BLOCKS_TERNARY 1
#elif defined(INT8) || defined(INT4_G32) || defined(INT4_G64) || defined(INT4_G128) \
    || defined(INT3_G64)
#define BLOCKS_INT 1
#endif
#if defined(BLOCKS_K) || defined(BLOCKS_CODES) || defined(BLOCKS_GRID) \
    || defined(BLOCKS_TERNARY) || defined(BLOCKS_INT)
#define FETCHED 1  // decoded from a Chunk
#endif
#if defined(Q8_0) || defined(INT8) || defined(BLOCKS_CODES) || defined(BLOCKS_SIGNED)
#define SIGNED_BYTES 1  // quants are signed bytes
#endif
#if defined(Q4_1) || defined(Q5_1) || defined(Q4_K) || defined(Q5_K) || defined(Q2_K)
#define MINIMA 1
#endif
#if defined(Q4_K) || defined(Q5_K) || defined(Q6_K) || defined(BLOCKS_K)
#define PAIRED 1  // two chunks share two runs of 32 columns: each has a half of both
#endif
#if defined(Q6_K) || defined(Q2_K) || defined(Q3_K) || defined(NVFP4)
#define SCALES_16 1  // a scale for each group of 16
#endif

uint byte_of(uint word, uint i) { return (word >> (8u * i)) & 0xFFu; }

// the four bytes of a word as floats
vec4 bytes4(uint q) {
    return vec4(float(q & 0xFFu), float((q >> 8) & 0xFFu), float((q >> 16) & 0xFFu), float(q >> 24));
}

float half_at(uint plane, uint i) {
    vec2 pair = unpackHalf2x16(w[plane + (i >> 1)]);
    return (i & 1u) == 0u ? pair.x : pair.y;
}

// the four signed bytes of a word as floats
vec4 signed4(uint q) {
    int s = int(q);
    return vec4(float((s << 24) >> 24), float((s << 16) >> 24), float((s << 8) >> 24),
                float(s >> 24));
}

#if defined(Q4_K) || defined(Q5_K) || defined(BLOCKS_K)
// columns: 64 values per pair of chunks; low nibbles first (block_q4_K), or bits 0, 1 and 4, 5
uint chunk_a(uint c) { return (c >> 1) * 64u + (c & 1u) * 16u; }
uint chunk_b(uint c) { return chunk_a(c) + 32u; }
#elif defined(Q6_K)
// columns: 128 values per four vectors, high nibbles 64 columns on (block_q6_K)
uint chunk_a(uint c) { return (c >> 2) * 128u + (c & 3u) * 16u; }
uint chunk_b(uint c) { return chunk_a(c) + 64u; }
#else
uint chunk_a(uint c) { return c * 32u; }
uint chunk_b(uint c) { return c * 32u + 16u; }
#endif

#if defined(F32)
void chunk_quants(uint g, out vec4 a[4], out vec4 b[4]) {
    uint at = p.w_p0 / 4u + g * 8u;
    FLAT for (uint k = 0u; k < 4u; k++) {
        a[k] = uintBitsToFloat(w4[at + k]);
        b[k] = uintBitsToFloat(w4[at + 4u + k]);
    }
}
#elif defined(F16)
void chunk_quants(uint g, out vec4 a[4], out vec4 b[4]) {
    uint at = p.w_p0 / 4u + g * 4u;
    FLAT for (uint k = 0u; k < 2u; k++) {
        uvec4 u = w4[at + k], v = w4[at + 2u + k];
        a[2u * k] = vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y));
        a[2u * k + 1u] = vec4(unpackHalf2x16(u.z), unpackHalf2x16(u.w));
        b[2u * k] = vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y));
        b[2u * k + 1u] = vec4(unpackHalf2x16(v.z), unpackHalf2x16(v.w));
    }
}
#elif defined(BF16)
vec4 bf16_pairs(uint lo, uint hi) {
    return uintBitsToFloat(uvec4(lo << 16, lo & 0xFFFF0000u, hi << 16, hi & 0xFFFF0000u));
}
void chunk_quants(uint g, out vec4 a[4], out vec4 b[4]) {
    uint at = p.w_p0 / 4u + g * 4u;
    FLAT for (uint k = 0u; k < 2u; k++) {
        uvec4 u = w4[at + k], v = w4[at + 2u + k];
        a[2u * k] = bf16_pairs(u.x, u.y);
        a[2u * k + 1u] = bf16_pairs(u.z, u.w);
        b[2u * k] = bf16_pairs(v.x, v.y);
        b[2u * k + 1u] = bf16_pairs(v.z, v.w);
    }
}
#elif defined(Q8_0)
// the 32 quants as packed bytes, signed here and unsigned in the other formats
void chunk_bytes(uint g, out uvec4 a, out uvec4 b) {
    uint at = p.w_p0 / 4u + g * 2u;
    a = w4[at];
    b = w4[at + 1u];
}
#elif defined(FETCHED)
#if defined(BLOCKS_K)
#include "blocks_k.glsl"
#elif defined(BLOCKS_CODES)
#include "blocks_codes.glsl"
#elif defined(BLOCKS_GRID)
#include "blocks_grid.glsl"
#elif defined(BLOCKS_INT)
#include "blocks_int.glsl"
#else
#include "blocks_ternary.glsl"
#endif
void chunk_bytes(uint g, out uvec4 a, out uvec4 b) { chunk_bytes_of(g, chunk_fetch(g), a, b); }
#else
// bit i of `bits` moved to bit 4 of byte i, for the fifth bit of 5-bit quants
uint fifth_bits(uint bits) {
    return ((bits & 1u) << 4) | ((bits & 2u) << 11) | ((bits & 4u) << 18) | ((bits & 8u) << 25);
}
void chunk_bytes(uint g, out uvec4 lo, out uvec4 hi) {
    uvec4 q = w4[p.w_p0 / 4u + g];
    lo = q & 0x0F0F0F0Fu;
    hi = (q >> 4) & 0x0F0F0F0Fu;
#if defined(Q5_0) || defined(Q5_1)
    uint h = w[p.w_p1 + g];  // bit j = fifth bit of value j
    FLAT for (uint k = 0u; k < 4u; k++) {
        lo[k] |= fifth_bits(h >> (4u * k));
        hi[k] |= fifth_bits(h >> (16u + 4u * k));
    }
#elif defined(Q5_K)
    // qh (32 bytes): bit s of byte l = fifth bit of value l of the s-th group of 32
    uvec4 h = w4[p.w_p1 / 4u + (g >> 3) * 2u + (g & 1u)] >> (g & 6u);
    lo |= (h & 0x01010101u) << 4;
    hi |= (h & 0x02020202u) << 3;
#elif defined(Q6_K)
    // qh (64 bytes): two bits per value; half n = bytes 32n …, shift 2 * (group of 32)
    uvec4 h = w4[p.w_p1 / 4u + (g >> 3) * 4u + ((g & 4u) >> 1) + (g & 1u)] >> (g & 2u);
    lo |= (h & 0x03030303u) << 4;
    hi |= h & 0x30303030u;
#endif
}
#endif

#if !defined(F32) && !defined(F16) && !defined(BF16)
#if defined(SIGNED_BYTES)
#define QUANTS4 signed4
#else
#define QUANTS4 bytes4
#endif
void chunk_quants(uint g, out vec4 a[4], out vec4 b[4]) {
    uvec4 u, v;
    chunk_bytes(g, u, v);
    FLAT for (uint k = 0u; k < 4u; k++) {
        a[k] = QUANTS4(u[k]);
        b[k] = QUANTS4(v[k]);
    }
}
#endif

// What is taken off a quant before scaling, for the formats with a fixed offset; OFFSET_B in group b
#if defined(Q4_0) || defined(INT4_G32) || defined(INT4_G64) || defined(INT4_G128)
const float QUANT_OFFSET = 8.0;
#elif defined(Q5_0)
const float QUANT_OFFSET = 16.0;
#elif defined(Q6_K)
const float QUANT_OFFSET = 32.0;
#elif defined(Q3_K) || defined(INT3_G64)
const float QUANT_OFFSET = 4.0;
#elif defined(TQ1_0) || defined(TQ2_0)
const float QUANT_OFFSET = 1.0;
#elif defined(IQ1_S) || defined(IQ1_M)
const float QUANT_OFFSET = 9.0;
#else
const float QUANT_OFFSET = 0.0;
#endif
#if defined(Q3_K) || defined(TQ2_0)
const float OFFSET_B = 4.0 * QUANT_OFFSET;  // these quants are four times as large
#else
const float OFFSET_B = QUANT_OFFSET;
#endif

#if defined(Q4_K) || defined(Q5_K)
// Six-bit scales and minima of groups s and s + 1 (s even) from the 12 bytes after d and dmin, both
// groups in the lowest bytes of a word: (scale, minimum, scale, minimum)
vec4 scales_min_k4(uvec4 head, uint s) {
    uvec3 v = head.yzw >> (8u * (s & 2u));
    uvec2 low = v.xy & 0x3F3Fu;
    uvec2 high = (uvec2(v.z, v.z >> 4) & 0x0F0Fu) | ((v.xy >> 2) & 0x3030u);
    uvec2 k = s < 4u ? low : high;
    vec2 dm = unpackHalf2x16(head.x) * vec2(1.0, -1.0);
    return dm.xyxy * vec4(k & 0xFFu, k >> 8);
}
#endif

// (scale a, minimum a, scale b, minimum b) with the fixed offset left out of the minimum
vec4 chunk_scales(uint g) {
#if defined(F32) || defined(F16) || defined(BF16)
    return vec4(1.0, 0.0, 1.0, 0.0);
#elif defined(Q4_0) || defined(Q8_0)
    float d = half_at(p.w_p1, g);
    return vec4(d, 0.0, d, 0.0);
#elif defined(Q4_1)
    vec2 dm = unpackHalf2x16(w[p.w_p1 + g]);
    return dm.xyxy;
#elif defined(Q5_0)
    float d = half_at(p.w_p2, g);
    return vec4(d, 0.0, d, 0.0);
#elif defined(Q5_1)
    vec2 dm = unpackHalf2x16(w[p.w_p2 + g]);
    return dm.xyxy;
#elif defined(Q4_K)
    uvec4 head = w4[p.w_p1 / 4u + (g >> 3)];
    return scales_min_k4(head, g & 6u);
#elif defined(Q5_K)
    uvec4 head = w4[p.w_p2 / 4u + (g >> 3)];
    return scales_min_k4(head, g & 6u);
#elif defined(Q6_K)
    // 16 signed bytes: scale of values 16 i …; group a of the chunk is i = 8 n + part * 2 + half
    float d = half_at(p.w_p3, g >> 3);
    uint i = (g & 4u) * 2u + (g & 3u);
    uint at = p.w_p2 + (g >> 3) * 4u;
    int sa = int(w[at + (i >> 2)] << (24u - 8u * (i & 3u))) >> 24;
    int sb = int(w[at + (i >> 2) + 1u] << (24u - 8u * (i & 3u))) >> 24;
    return vec4(d * float(sa), 0.0, d * float(sb), 0.0);
#else
    return chunk_scales_of(g, chunk_fetch(g));
#endif
}

// The 32 decoded values of chunk g
void chunk_values(uint g, out vec4 a[4], out vec4 b[4]) {
    chunk_quants(g, a, b);
#if !defined(F32) && !defined(F16) && !defined(BF16)
    vec4 s = chunk_scales(g);
    FLAT for (uint k = 0u; k < 4u; k++) {
        a[k] = s.x * (a[k] - QUANT_OFFSET) + s.y;
        b[k] = s.z * (b[k] - OFFSET_B) + s.w;
    }
#endif
}

// Scalar product of chunk g with inputs xa, xb; sums = (sum of xa, sum of xb)
float chunk_dot(uint g, vec4 xa[4], vec4 xb[4], vec2 sums) {
    vec4 a[4], b[4];
    chunk_quants(g, a, b);
    float da = 0.0, db = 0.0;
    FLAT for (uint k = 0u; k < 4u; k++) {
        da += dot(a[k], xa[k]);
        db += dot(b[k], xb[k]);
    }
#if defined(F32) || defined(F16) || defined(BF16)
    return da + db;
#else
    vec4 s = chunk_scales(g);
    da -= QUANT_OFFSET * sums.x;
    db -= OFFSET_B * sums.y;
    return s.x * da + s.y * sums.x + s.z * db + s.w * sums.y;
#endif
}
