// Q2_K, Q3_K and TQ2_0: 2 bits a value. A 16-byte vector of qs holds 16 columns of each of four
// groups, 32 columns apart, so a chunk takes two of the four groups: those of shift 0 and 2, or 4
// and 6. The upper group stays where it is in the byte, four times too large, and has a quarter of
// its scale: that saves a shift, and powers of two are exact. Layouts: block_q2_K, block_q3_K and
// block_tq2_0 of ggml-common.h.

#if defined(Q3_K)
const uint RAW = 2u;
#else
const uint RAW = 1u;
#endif

struct Chunk { uvec4 q[RAW]; uvec4 s; };

Chunk chunk_fetch(uint g) {
    Chunk c;
    uint block = g >> 3;
    c.q[0] = w4[p.w_p0 / 4u + block * 4u + ((g & 4u) >> 1) + (g & 1u)];
#if defined(Q2_K)
    // 16 bytes of scale (low nibble) and minimum: of group a in byte g & 1, of b two bytes on
    c.s.xy = uvec2(w[p.w_p1 + block * 4u + ((g >> 1) & 3u)], w[p.w_p2 + block]);
#elif defined(Q3_K)
    c.q[1] = w4[p.w_p1 / 4u + block * 2u + (g & 1u)];  // bit s: of the s-th group of 32
    c.s = w4[p.w_p2 / 4u + block];
#else
    c.s.x = w[p.w_p1 + (block >> 1)];
#endif
    return c;
}

void chunk_bytes_of(uint g, Chunk c, out uvec4 lo, out uvec4 hi) {
    uvec4 q = c.q[0] >> ((g & 2u) * 2u);
    lo = q & 0x03030303u;
    hi = q & 0x0C0C0C0Cu;
#if defined(Q3_K)
    uvec4 third = c.q[1] >> (g & 6u);
    lo |= (third & 0x01010101u) << 2;
    hi |= (third & 0x02020202u) << 3;
#endif
}

vec4 chunk_scales_of(uint g, Chunk c) {
    uint odd = (g & 1u) * 8u;
#if defined(Q2_K)
    vec2 dm = unpackHalf2x16(c.s.y);
    uint v = c.s.x >> odd;
    return vec4(dm.x * float(v & 15u), -dm.y * float((v >> 4) & 15u),
                dm.x * 0.25 * float((v >> 16) & 15u), -dm.y * float((v >> 20) & 15u));
#elif defined(Q3_K)
    // 16 scales of six bits, minus 32: low nibbles in 8 bytes, then high bits in 4, two each
    float d = unpackHalf2x16(c.s.w).x;
    uint low = ((g & 2u) == 0u ? c.s.x : c.s.y) >> (g & 4u), high = c.s.z >> (g & 6u);
    uint v = ((low & 0x0F0F0F0Fu) | ((high & 0x03030303u) << 4)) >> odd;
    return vec4(d * float(int(v & 63u) - 32), 0.0, d * 0.25 * float(int((v >> 16) & 63u) - 32), 0.0);
#else
    vec2 pair = unpackHalf2x16(c.s.x);
    float d = (g & 8u) == 0u ? pair.x : pair.y;
    return vec4(d, 0.0, d * 0.25, 0.0);
#endif
}
