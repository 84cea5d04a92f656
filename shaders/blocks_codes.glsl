// IQ4_NL, IQ4_XS, MXFP4 and NVFP4: a quant is a nibble that stands for one of 16 signed bytes.
//
// There is no table: every bit of the byte is a boolean function of the nibble's four bits, worked
// out for the eight nibbles of a word at once (about 40 operations per eight values, and no loads).
// Layouts and values: block_iq4_nl, block_iq4_xs, block_mxfp4, block_nvfp4 and kvalues of
// ggml-common.h; e2m1 and e8m0 are of OCP Microscaling Formats 1.0.

const uint RAW = 1u;
struct Chunk { uvec4 q[RAW]; uvec4 s; };

Chunk chunk_fetch(uint g) {
    Chunk c;
    c.q[0] = w4[p.w_p0 / 4u + g];
#if defined(IQ4_NL) || defined(NVFP4)
    c.s.x = w[p.w_p1 + (g >> 1)];
#elif defined(MXFP4)
    c.s.x = w[p.w_p1 + (g >> 2)];
#else
    c.s.xy = uvec2(w[p.w_p1 + (g >> 3) * 2u], w[p.w_p1 + (g >> 3) * 2u + 1u]);
#endif
    return c;
}

// The values of all low nibbles and of all high nibbles of a vector
void decode_codes(uvec4 q, out uvec4 lo, out uvec4 hi) {
    const uint ONES = 0x11111111u;
    uvec4 b0 = q & ONES, b1 = (q >> 1) & ONES, b2 = (q >> 2) & ONES, b3 = (q >> 3) & ONES;
    uvec4 low, high;  // nibbles of the bytes
#if defined(IQ4_NL) || defined(IQ4_XS)
    // -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
    uvec4 v0 = (b2 & b3) | (b1 ^ (b2 | b3)) | (ONES ^ (b0 | b2));
    uvec4 v1 = b2 ^ ((b0 & (b1 ^ b2)) | (b2 & b3));
    uvec4 v2 = ((b0 & b1) | (b1 ^ b2)) ^ (b3 & (b0 ^ ((b0 | b1) & (b1 ^ b2))));
    uvec4 v3 = ((b0 ^ b1) | (b0 ^ b2)) ^ (b3 & ((b0 | b2) & (b1 ^ b2)));
    uvec4 v4 = b0 ^ (((b0 ^ b1) | (b0 ^ b2)) & b3);
    uvec4 v5 = ((b3 & ~b0) ^ b1) & (b1 | b2);
    uvec4 v6 = (b0 | b1 | ~b3) & b2;
    high = v4 + v5 * 2u + v6 * 4u + (b3 ^ ONES) * 8u;
#else
    // 0 1 2 3 4 6 8 12, negative with the highest bit
    uvec4 v0 = b0 & ~b2;
    uvec4 v1 = ((b2 | (b0 & b3)) ^ b1) & (b0 | b1);
    uvec4 v2 = (b2 & (b0 | ~b1)) ^ (b3 & ((b0 | b1) ^ (b1 & b2)));
    uvec4 v3 = (b1 & b2) ^ (b3 & (b0 | (b1 ^ b2)));
    high = ((b0 | b1 | b2) & b3) * 15u;
#endif
    low = v0 + v1 * 2u + v2 * 4u + v3 * 8u;
    lo = (low & 0x0F0F0F0Fu) | ((high & 0x0F0F0F0Fu) << 4);
    hi = ((low >> 4) & 0x0F0F0F0Fu) | (high & 0xF0F0F0F0u);
}

void chunk_bytes_of(uint g, Chunk c, out uvec4 a, out uvec4 b) {
    uvec4 lo, hi;
    decode_codes(c.q[0], lo, hi);
#if defined(NVFP4)
    // 8 bytes hold a group of 16: low nibbles first
    a = uvec4(lo.xy, hi.xy);
    b = uvec4(lo.zw, hi.zw);
#else
    a = lo;
    b = hi;
#endif
}

#if defined(NVFP4)
// Half of an unsigned e4m3 number in a byte; 0x7F is no number and stands for 0
float half_e4m3(uint v) {
    uint e = (v >> 3) & 15u;
    float steps = float(v & 7u) + (e == 0u ? 0.0 : 8.0);
    return v == 0x7Fu ? 0.0 : steps * uintBitsToFloat((max(e, 1u) + 116u) << 23);  // 2^(e - 11)
}
#endif

vec4 chunk_scales_of(uint g, Chunk c) {
#if defined(NVFP4)
    uint v = c.s.x >> ((g & 1u) * 16u);
    return vec4(half_e4m3(v & 0xFFu), 0.0, half_e4m3((v >> 8) & 0xFFu), 0.0);
#else
#if defined(IQ4_NL)
    vec2 pair = unpackHalf2x16(c.s.x);
    float d = (g & 1u) == 0u ? pair.x : pair.y;
#elif defined(MXFP4)
    uint e = byte_of(c.s.x, g & 3u);  // d = 2^(e - 128)
    float d = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
#else
    uint s = g & 7u;  // group of 32: four low bits of its scale, and two high ones
    uint v = ((c.s.y >> (4u * s)) & 15u) | (((c.s.x >> (16u + 2u * s)) & 3u) << 4);
    float d = unpackHalf2x16(c.s.x).x * float(int(v) - 32);
#endif
    return vec4(d, 0.0, d, 0.0);
#endif
}
