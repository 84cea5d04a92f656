// Products of quantized weights with activations in int8: groups of 16 values with one scale.
// xs[i] = (scale, scale * sum of the 16 quants) of values 16 i …; xq[i] = those 16 quants.

// Formats of which the mat-vecs take four chunks at a time (units_q8.glsl); without it, one
#if defined(Q3_K) || defined(Q2_K)
#define QUADS 1
#endif

#include "dot4.glsl"

// Scalar product of weight chunk g with activation groups a and b of its columns
float chunk_dot_q8(uint g, uvec4 xa, uvec4 xb, vec2 za, vec2 zb) {
    uvec4 a, b;
    chunk_bytes(g, a, b);
    float da = float(dot16(a, xa)) * za.x - QUANT_OFFSET * za.y;
    float db = float(dot16(b, xb)) * zb.x - OFFSET_B * zb.y;
#if !defined(MINIMA) && !defined(SCALES_16)
    return chunk_scales(g).x * (da + db);
#elif defined(Q4_1) || defined(Q5_1)
    vec2 s = chunk_scales(g).xy;
    return s.x * (da + db) + s.y * (za.y + zb.y);
#else
    vec4 s = chunk_scales(g);
    return s.x * da + s.y * za.y + s.z * db + s.w * zb.y;
#endif
}
