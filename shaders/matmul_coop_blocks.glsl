// Weight chunks as f16, a group of 16 values at a time, from what chunk_fetch or part_fetch read.
//
// A quant q of up to 8 bits is put into the mantissa of the f16 number 32, which makes 32 + q / 32;
// taking off 32 is exact. Scales are multiplied by 32 in return, which also keeps small ones
// away from the subnormal numbers.
//
// The including shader declares PARTS: 1 where an invocation decodes both groups of a chunk, 2 where
// it decodes only the one it asks for.

#include "matmul_coop_fetch.glsl"

#if defined(F32) || defined(F16) || defined(BF16) || defined(Q8_0)
const uint GROUP_RAW = RAW / 2u;  // 16-byte vectors of a group

Chunk part_fetch(uint g, uint part) {
    if (PARTS == 1u) return chunk_fetch(g);
    Chunk c;
    [[unroll]] for (uint k = 0u; k < GROUP_RAW; k++)
        c.q[k] = w4[p.w_p0 / 4u + g * RAW + part * GROUP_RAW + k];
#if defined(Q8_0)
    c.s.x = w[p.w_p1 + (g >> 1)];
#endif
    return c;
}

uvec4 group_raw(Chunk c, uint b, uint k) {
    return c.q[PARTS == 1u ? b * GROUP_RAW + k : k];
}
#else
Chunk part_fetch(uint g, uint part) { return chunk_fetch(g); }
#endif

#if defined(F32) || defined(F16) || defined(BF16)
void group_halves(uint g, Chunk c, uint b, bool past, out uvec4 h[2]) {
    [[unroll]] for (uint k = 0u; k < 2u; k++) {
#if defined(F16)
        h[k] = group_raw(c, b, k);
#elif defined(F32)
        vec4 u = uintBitsToFloat(group_raw(c, b, 2u * k));
        vec4 v = uintBitsToFloat(group_raw(c, b, 2u * k + 1u));
        h[k] = uvec4(half_pair(u.x, u.y), half_pair(u.z, u.w), half_pair(v.x, v.y),
                     half_pair(v.z, v.w));
#else
        uvec4 u = group_raw(c, b, k);
        vec4 even = uintBitsToFloat(u << 16), odd = uintBitsToFloat(u & 0xFFFF0000u);
        h[k] = uvec4(half_pair(even.x, odd.x), half_pair(even.y, odd.y),
                     half_pair(even.z, odd.z), half_pair(even.w, odd.w));
#endif
        if (past) h[k] = uvec4(0u);
    }
}
#else
// The 16 quants of group b as unsigned bytes (Q8_0: with the sign bit turned over)
uvec4 group_bytes(uint g, Chunk c, uint b) {
#if defined(Q8_0)
    return group_raw(c, b, 0u) ^ 0x80808080u;
#else
    uvec4 v = (c.q[0] >> (4u * b)) & 0x0F0F0F0Fu;
#if defined(Q5_0) || defined(Q5_1)
    uint fifth = c.s.y >> (16u * b);
    [[unroll]] for (uint k = 0u; k < 4u; k++) v[k] |= fifth_bits(fifth >> (4u * k));
#elif defined(Q5_K)
    v |= ((c.q[1] >> ((g & 6u) + b)) & 0x01010101u) << 4;
#elif defined(Q6_K)
    v |= ((c.q[1] >> ((g & 2u) + 4u * b)) & 0x03030303u) << 4;
#endif
    return v;
#endif
}

// (scale, minimum) of group b
vec2 group_scale(uint g, Chunk c, uint b) {
#if defined(Q4_K) || defined(Q5_K)
    return scale_min_k4(c.s, (g & 6u) + b);
#elif defined(Q6_K)
    vec2 pair = unpackHalf2x16(c.s.z);
    uint scales = b == 0u ? c.s.x : c.s.y;
    float own = float(int(scales << (24u - 8u * (g & 3u))) >> 24);
    return vec2(((g & 8u) == 0u ? pair.x : pair.y) * own, 0.0);
#else
    return chunk_scales_of(g, c).xy;
#endif
}

#if defined(Q8_0)
const float16_t ORIGIN = float16_t(36.0);
#else
const float16_t ORIGIN = float16_t(32.0 + QUANT_OFFSET / 32.0);
#endif

// The four bytes of v times a scale, plus a minimum, as two pairs of f16
uvec2 scaled4(uint v, f16vec2 scale) {
    f16vec2 even = unpackFloat2x16((v & 0x00FF00FFu) | 0x50005000u) - ORIGIN;
    f16vec2 odd = unpackFloat2x16(((v >> 8) & 0x00FF00FFu) | 0x50005000u) - ORIGIN;
#if defined(Q4_1) || defined(Q5_1) || defined(Q4_K) || defined(Q5_K)
    even = fma(even, scale.xx, scale.yy);
    odd = fma(odd, scale.xx, scale.yy);
#else
    even *= scale.x;
    odd *= scale.x;
#endif
    return uvec2(packFloat2x16(f16vec2(even.x, odd.x)), packFloat2x16(f16vec2(even.y, odd.y)));
}

// Group b of chunk g as f16; zeros when the chunk is past the end of a row
void group_halves(uint g, Chunk c, uint b, bool past, out uvec4 h[2]) {
    uvec4 v = group_bytes(g, c, b);
    f16vec2 scale = f16vec2(group_scale(g, c, b) * vec2(past ? 0.0 : 32.0, past ? 0.0 : 1.0));
    [[unroll]] for (uint k = 0u; k < 2u; k++)
        h[k] = uvec4(scaled4(v[2u * k], scale), scaled4(v[2u * k + 1u], scale));
}
#endif
