// Storing a row of either cache, two neighbouring values per invocation. Builds: KV16, both caches
// in float16; ANY, each of the type that K_TYPE and V_TYPE say. The stem declares k and v as uint,
// and the constants.

#include "cache.glsl"

#ifdef KV16
void store_row(bool to_v, uint pos, uint width, uint column, float a, float b) {
    if (column < width) store_cached(to_v, key_row(pos) * width + column, a, b);
}
#else
// bits of float32: a group with a value that is not finite gets a scale that is none, so that
// logits show it
const uint INFINITY = 0x7F800000u, NOT_A_NUMBER = 0x7FC00000u;

shared float own[2u * WORKGROUP];
shared float scales[WORKGROUP / 16u];

void put(bool to_v, uint at, uint word) {
    if (to_v) v[p.v_base + at] = word;
    else k[p.k_base + at] = word;
}

// Scale of 32 values from the largest and the smallest: largest magnitude / 127 in Q8_0; in Q4_0
// the value of largest magnitude, whichever its sign, becomes -8 (quantize_row_q8_0_ref and
// quantize_row_q4_0_ref of ggml-quants.c).
float scale_of(uint type, float most, float least) {
    if (type == TYPE_Q8_0) return max(most, -least) / 127.0;
    return (most > -least ? most : least) / -8.0;
}

uint quantized_word(uint type, uint first, float inverse) {
    uint word = 0u;
    if (type == TYPE_Q8_0) {
        for (uint i = 0u; i < 4u; i++)
            word |= (uint(int(roundEven(own[first + i] * inverse))) & 0xFFu) << (8u * i);
    } else {
        for (uint i = 0u; i < 8u; i++)
            word |= min(uint(own[first + i] * inverse + 8.5), 15u) << (4u * i);
    }
    return word;
}

// 16 invocations hold a group of 32 values and write its words, the first of 32 two scales.
void store_quantized(bool to_v, uint type, uint width, uint start, uint column, float a, float b) {
    uint t = gl_LocalInvocationID.x, lane = t % 16u, first = 2u * (t - lane);
    own[2u * t] = a;
    own[2u * t + 1u] = b;
    barrier();
    float most = own[first], least = own[first];
    bool finite = true;
    for (uint i = 0u; i < 32u; i++) {
        float value = own[first + i];
        most = max(most, value);
        least = min(least, value);
        finite = finite && (floatBitsToUint(value) & INFINITY) != INFINITY;
    }
    float scale = finite ? scale_of(type, most, least) : uintBitsToFloat(NOT_A_NUMBER);
    if (lane == 0u) scales[t / 16u] = scale;
    barrier();
    column -= 2u * lane;
    if (column >= width) return;
    uint values = type == TYPE_Q8_0 ? 4u : 8u;
    if (lane < 32u / values) {
        float inverse = scale != 0.0 ? 1.0 / scale : 0.0;
        put(to_v, start + column / values + lane,
            quantized_word(type, first + values * lane, inverse));
    }
    if (t % 32u == 0u)
        put(to_v, start + value_words(type, width) + column / 64u,
            packHalf2x16(vec2(scales[t / 16u], scales[t / 16u + 1u])));
}

// Values column and column + 1 of the position's row. All invocations of a workgroup of 32 or
// more take part; its first column is a multiple of 64; beyond `width`, values are zero.
void store_row(bool to_v, uint pos, uint width, uint column, float a, float b) {
    uint type = to_v ? V_TYPE : K_TYPE, start = key_row(pos) * row_words(type, width);
    if (type == TYPE_F16) {
        if (column < width) put(to_v, start + column / 2u, packHalf2x16(vec2(a, b)));
    } else if (type == TYPE_F32) {
        if (column >= width) return;
        put(to_v, start + column, floatBitsToUint(a));
        put(to_v, start + column + 1u, floatBitsToUint(b));
    } else {
        store_quantized(to_v, type, width, start, column, a, b);
    }
}
#endif
