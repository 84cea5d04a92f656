// Weight chunks as f16, of what chunk_fetch read.
//
// A quant q of up to 8 bits is put into the mantissa of the f16 number 32, which makes 32 + q / 32;
// taking off 32 is exact. Scales are multiplied by 32 in return, which also keeps small ones
// away from the subnormal numbers.

#include "matmul_coop_fetch.glsl"

#if defined(F32) || defined(F16) || defined(BF16)
void chunk_halves(uint g, Chunk c, out uvec4 h[4]) {
#if defined(F16)
    [[unroll]] for (uint k = 0u; k < 4u; k++) h[k] = c.q[k];
#elif defined(F32)
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        vec4 u = uintBitsToFloat(c.q[2u * k]), v = uintBitsToFloat(c.q[2u * k + 1u]);
        h[k] = uvec4(half_pair(u.x, u.y), half_pair(u.z, u.w), half_pair(v.x, v.y),
                     half_pair(v.z, v.w));
    }
#else
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        vec4 even = uintBitsToFloat(c.q[k] << 16), odd = uintBitsToFloat(c.q[k] & 0xFFFF0000u);
        h[k] = uvec4(half_pair(even.x, odd.x), half_pair(even.y, odd.y),
                     half_pair(even.z, odd.z), half_pair(even.w, odd.w));
    }
#endif
}
#else
#if defined(SIGNED_BYTES)
const vec2 ORIGINS = vec2(36.0);  // signed bytes with the sign bit turned over
#else
const vec2 ORIGINS = 32.0 + vec2(QUANT_OFFSET, OFFSET_B) / 32.0;
#endif
const float16_t ORIGIN_A = float16_t(ORIGINS.x), ORIGIN_B = float16_t(ORIGINS.y);

// The four bytes of v, minus an origin, times a scale, plus a minimum, as two pairs of f16
uvec2 scaled4(uint v, float16_t origin, float16_t scale, float16_t least) {
    f16vec2 even = unpackFloat2x16((v & 0x00FF00FFu) | 0x50005000u) - origin;
    f16vec2 odd = unpackFloat2x16(((v >> 8) & 0x00FF00FFu) | 0x50005000u) - origin;
#ifdef MINIMA
    even = fma(even, f16vec2(scale), f16vec2(least));
    odd = fma(odd, f16vec2(scale), f16vec2(least));
#else
    even *= scale;
    odd *= scale;
#endif
    return uvec2(packFloat2x16(f16vec2(even.x, odd.x)), packFloat2x16(f16vec2(even.y, odd.y)));
}

// Chunk g as f16: group a in h[0], h[1], group b in h[2], h[3]
void chunk_halves(uint g, Chunk c, out uvec4 h[4]) {
    uvec4 lo, hi;
    chunk_bytes_of(g, c, lo, hi);
#if defined(SIGNED_BYTES)
    lo ^= 0x80808080u;
    hi ^= 0x80808080u;
#endif
    f16vec4 f = f16vec4(chunk_scales_of(g, c) * vec4(32.0, 1.0, 32.0, 1.0));
    [[unroll]] for (uint k = 0u; k < 2u; k++) {
        h[k] = uvec4(scaled4(lo[2u * k], ORIGIN_A, f.x, f.y),
                     scaled4(lo[2u * k + 1u], ORIGIN_A, f.x, f.y));
        h[2u + k] = uvec4(scaled4(hi[2u * k], ORIGIN_B, f.z, f.w),
                          scaled4(hi[2u * k + 1u], ORIGIN_B, f.z, f.w));
    }
}
#endif
