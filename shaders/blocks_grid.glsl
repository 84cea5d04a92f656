// IQ1, IQ2 and IQ3: a quant is an index into a codebook of 8 values (IQ3: 4), which is the last
// plane of the matrix (engine/grids.py), and signs apart. The bytes are signed in IQ2 and IQ3; in
// IQ1 they are 8 * (value + 1), plus 2 where the shift of an eighth goes up, which makes 9 the
// offset. Layouts: block_iq1_s … block_iq3_s of ggml-common.h.

const uint RAW = 1u;
struct Chunk { uvec4 q[RAW]; uvec4 s; };

#if defined(IQ2_XXS)
#define GRID p.w_p2
#else
#define GRID p.w_p3
#endif

// q: indices and signs as they lie; s: d (two blocks' halves) and the scale of the chunk
Chunk chunk_fetch(uint g) {
    Chunk c;
    uint block = g >> 3, i = g & 7u;
#if defined(IQ1_S)
    uint high = (w[p.w_p1 + (g >> 1)] >> ((g & 1u) * 16u)) & 0xFFFFu;
    c.q[0].xy = uvec2(w[p.w_p0 + g], high);
    c.s.x = w[p.w_p2 + (block >> 1)];
#elif defined(IQ1_M)
    uint high = (w[p.w_p1 + (g >> 1)] >> ((g & 1u) * 16u)) & 0xFFFFu;
    c.q[0].xy = uvec2(w[p.w_p0 + g], high);
    c.s.xy = uvec2(w[p.w_p2 + block * 2u], w[p.w_p2 + block * 2u + 1u]);
#elif defined(IQ2_XXS)
    c.q[0].xy = uvec2(w[p.w_p0 + g * 2u], w[p.w_p0 + g * 2u + 1u]);
    c.s.xy = uvec2(w[p.w_p1 + (block >> 1)], c.q[0].y >> 28);
#elif defined(IQ2_XS)
    c.q[0].xy = uvec2(w[p.w_p0 + g * 2u], w[p.w_p0 + g * 2u + 1u]);
    c.s.xy = uvec2(w[p.w_p2 + (block >> 1)], byte_of(w[p.w_p1 + (g >> 2)], g & 3u));
#elif defined(IQ2_S)
    uint at = p.w_p0 + block * 16u + i, top = p.w_p1 + block * 4u + (i >> 2);
    c.q[0].xyz = uvec3(w[at], w[at + 8u], byte_of(w[top], i & 3u));
    c.s.xy = uvec2(w[p.w_p2 + (block >> 1)], byte_of(w[top + 2u], i & 3u));
#elif defined(IQ3_XXS)
    c.q[0].xyz = uvec3(w[p.w_p0 + g * 2u], w[p.w_p0 + g * 2u + 1u], w[p.w_p1 + g]);
    c.s.xy = uvec2(w[p.w_p2 + (block >> 1)], c.q[0].z >> 28);
#elif defined(IQ3_S)
    uint at = p.w_p1 + block * 11u;  // 8 bytes of high bits, 32 of signs, 4 of scales
    c.q[0] = uvec4(w[p.w_p0 + g * 2u], w[p.w_p0 + g * 2u + 1u], w[at + 2u + i],
                   byte_of(w[at + (i >> 2)], i & 3u));
    c.s.xy = uvec2(w[p.w_p2 + (block >> 1)], (w[at + 10u] >> (4u * i)) & 15u);
#endif
    return c;
}

#if !defined(IQ1_S) && !defined(IQ1_M)
// Bit j of `bits` negates byte j, none of which is 0
uint negated(uint v, uint bits) {
    uint s = ((bits & 15u) * 0x00204081u) & 0x01010101u;
    return (v ^ (s * 255u)) + s;
}

// Seven signs are stored; the eighth makes their number even
uint eighth_sign(uint bits) { return (bits & 127u) | ((uint(bitCount(bits & 127u)) & 1u) << 7); }
#endif

// Quants 2 k and 2 k + 1: 16 values
uvec4 group_bytes(Chunk c, uint k) {
    uvec4 v;
    uint word, signs = 0u;
    FLAT for (uint j = 0u; j < 2u; j++) {
        uint n = 2u * k + j;
#if defined(IQ3_XXS) || defined(IQ3_S)
        word = c.q[0][k] >> (16u * j);
        uvec2 index = uvec2(word & 0xFFu, (word >> 8) & 0xFFu);
#if defined(IQ3_XXS)
        signs = eighth_sign(c.q[0].z >> (7u * n));
#else
        index |= (uvec2(c.q[0].w >> (2u * n), c.q[0].w >> (2u * n + 1u)) & 1u) << 8;
        signs = c.q[0].z >> (8u * n);
#endif
        uvec2 pair = uvec2(w[GRID + index.x], w[GRID + index.y]);
#else
#if defined(IQ1_S)
        uint index = byte_of(c.q[0].x, n) | (((c.q[0].y >> (3u * n)) & 7u) << 8);
        uint shift = (c.q[0].y & 0x8000u) == 0u ? 0x02020202u : 0u;
#elif defined(IQ1_M)
        uint nibble = c.q[0].y >> (4u * n);
        uint index = byte_of(c.q[0].x, n) | ((nibble & 7u) << 8);
        uint shift = (nibble & 8u) == 0u ? 0x02020202u : 0u;
#elif defined(IQ2_XXS)
        uint index = byte_of(c.q[0].x, n);
        signs = eighth_sign(c.q[0].y >> (7u * n));
#elif defined(IQ2_XS)
        word = c.q[0][k] >> (16u * j);
        uint index = word & 511u;
        signs = eighth_sign(word >> 9);
#else
        uint index = byte_of(c.q[0].x, n) | (((c.q[0].z >> (2u * n)) & 3u) << 8);
        signs = c.q[0].y >> (8u * n);
#endif
        uvec2 pair = uvec2(w[GRID + index * 2u], w[GRID + index * 2u + 1u]);
#endif
#if defined(IQ1_S) || defined(IQ1_M)
        v[2u * j] = pair.x + shift;
        v[2u * j + 1u] = pair.y + shift;
#else
        v[2u * j] = negated(pair.x, signs);
        v[2u * j + 1u] = negated(pair.y, signs >> 4);
#endif
    }
    return v;
}

void chunk_bytes_of(uint g, Chunk c, out uvec4 a, out uvec4 b) {
    a = group_bytes(c, 0u);
    b = group_bytes(c, 1u);
}

vec4 chunk_scales_of(uint g, Chunk c) {
#if defined(IQ1_M)
    // the scale's four nibbles lead four words of 16 bits, each with four scales of three bits
    uint bits = ((c.s.x >> 12) & 0xFu) | ((c.s.x >> 24) & 0xF0u) | ((c.s.y >> 4) & 0xF00u)
        | ((c.s.y >> 16) & 0xF000u);
    uint i = g & 7u, v = ((i < 4u ? c.s.x : c.s.y) >> (16u * ((i >> 1) & 1u))) >> (6u * (i & 1u));
    float d = unpackHalf2x16(bits).x * 0.125;
    return vec4(d * float(2u * (v & 7u) + 1u), 0.0, d * float(2u * ((v >> 3) & 7u) + 1u), 0.0);
#else
    vec2 pair = unpackHalf2x16(c.s.x);
    float d = (g & 8u) == 0u ? pair.x : pair.y, b = 0.0;
#if defined(IQ1_S)
    d *= 0.125 * float(2u * ((c.q[0].y >> 12) & 7u) + 1u);
#elif defined(IQ2_XXS)
    d *= (0.5 + float(c.s.y)) * 0.25;
#elif defined(IQ3_XXS)
    d *= (0.5 + float(c.s.y)) * 0.5;
#elif defined(IQ3_S)
    d *= float(2u * c.s.y + 1u);
#else
    b = d * (0.5 + float(c.s.y >> 4)) * 0.25;
    return vec4(d * (0.5 + float(c.s.y & 15u)) * 0.25, 0.0, b, 0.0);
#endif
    return vec4(d, 0.0, d, 0.0);
#endif
}
