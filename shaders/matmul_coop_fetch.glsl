// Weight chunks (blocks.glsl) in two halves: chunk_fetch reads the words of a chunk and nothing else,
// so that a load is in flight while earlier chunks are multiplied; the rest decodes them.

#ifndef FETCHED
#if defined(F32)
const uint RAW = 8u;
#elif defined(F16) || defined(BF16)
const uint RAW = 4u;
#elif defined(Q8_0) || defined(Q5_K) || defined(Q6_K)
const uint RAW = 2u;
#else
const uint RAW = 1u;
#endif

struct Chunk { uvec4 q[RAW]; uvec4 s; };

Chunk chunk_fetch(uint g) {
    Chunk c;
#if defined(F32) || defined(F16) || defined(BF16) || defined(Q8_0)
    [[unroll]] for (uint k = 0u; k < RAW; k++) c.q[k] = w4[p.w_p0 / 4u + g * RAW + k];
#else
    c.q[0] = w4[p.w_p0 / 4u + g];
#endif
#if defined(Q4_0) || defined(Q8_0)
    c.s.x = w[p.w_p1 + (g >> 1)];
#elif defined(Q4_1)
    c.s.x = w[p.w_p1 + g];
#elif defined(Q5_0)
    c.s.xy = uvec2(w[p.w_p2 + (g >> 1)], w[p.w_p1 + g]);
#elif defined(Q5_1)
    c.s.xy = uvec2(w[p.w_p2 + g], w[p.w_p1 + g]);
#elif defined(Q4_K)
    c.s = w4[p.w_p1 / 4u + (g >> 3)];
#elif defined(Q5_K)
    c.s = w4[p.w_p2 / 4u + (g >> 3)];
    c.q[1] = w4[p.w_p1 / 4u + (g >> 3) * 2u + (g & 1u)];
#elif defined(Q6_K)
    uint at = p.w_p2 + (g >> 3) * 4u + ((g & 4u) >> 1);
    c.s.xyz = uvec3(w[at], w[at + 1u], w[p.w_p3 + (g >> 4)]);
    c.q[1] = w4[p.w_p1 / 4u + (g >> 3) * 4u + ((g & 4u) >> 1) + (g & 1u)];
#endif
    return c;
}

#if !defined(F32) && !defined(F16) && !defined(BF16)
// The 32 quants of chunk g as bytes: group a, group b; unsigned, except Q8_0's
void chunk_bytes_of(uint g, Chunk c, out uvec4 lo, out uvec4 hi) {
#if defined(Q8_0)
    lo = c.q[0], hi = c.q[1];
#else
    lo = c.q[0] & 0x0F0F0F0Fu, hi = (c.q[0] >> 4) & 0x0F0F0F0Fu;
#endif
#if defined(Q5_0) || defined(Q5_1)
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        lo[k] |= fifth_bits(c.s.y >> (4u * k));
        hi[k] |= fifth_bits(c.s.y >> (16u + 4u * k));
    }
#elif defined(Q5_K)
    uvec4 fifth = c.q[1] >> (g & 6u);
    lo |= (fifth & 0x01010101u) << 4;
    hi |= (fifth & 0x02020202u) << 3;
#elif defined(Q6_K)
    uvec4 top = c.q[1] >> (g & 2u);
    lo |= (top & 0x03030303u) << 4;
    hi |= top & 0x30303030u;
#endif
}

// (scale a, minimum a, scale b, minimum b), as chunk_scales of blocks.glsl
vec4 chunk_scales_of(uint g, Chunk c) {
#if defined(Q4_0) || defined(Q8_0) || defined(Q5_0)
    vec2 d = unpackHalf2x16(c.s.x);
    return vec4((g & 1u) == 0u ? d.x : d.y, 0.0, (g & 1u) == 0u ? d.x : d.y, 0.0);
#elif defined(Q4_1) || defined(Q5_1)
    return unpackHalf2x16(c.s.x).xyxy;
#elif defined(Q4_K) || defined(Q5_K)
    return scales_min_k4(c.s, g & 6u);
#else
    vec2 pair = unpackHalf2x16(c.s.z);
    float d = (g & 8u) == 0u ? pair.x : pair.y;
    uint shift = 24u - 8u * (g & 3u);
    return vec4(d * float(int(c.s.x << shift) >> 24), 0.0,
                d * float(int(c.s.y << shift) >> 24), 0.0);
#endif
}
#endif
#endif
