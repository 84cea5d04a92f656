// Values of cache rows as float32, eight or four neighbours at a time (`column` is a multiple of
// eight or four). Builds: F16, both caches in float16; ANY, each of the type that K_TYPE and
// V_TYPE say, constants that the driver folds. The stem declares CACHE(…, k), CACHE(…, v),
// HEAD_DIM and, for ANY, the types.

#include "cache.glsl"

struct Eight { vec4 lo; vec4 hi; };

// Values of a row of either cache
uint row_width() { return p.n_head_kv * HEAD_DIM; }

#ifdef F16
// Eight values as stored
#define Raw uvec4

Raw key(uint row, uint column) { return k[(p.k_base + (row * row_width() + column) / 2u) / 4u]; }
Raw val(uint row, uint column) { return v[(p.v_base + (row * row_width() + column) / 2u) / 4u]; }

// The values but for the scale of their group, by which `scaled` multiplies
Eight unpack_key(Raw u) {
    return Eight(vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y)),
                 vec4(unpackHalf2x16(u.z), unpackHalf2x16(u.w)));
}
Eight unpack_val(Raw u) { return unpack_key(u); }
float scaled(Raw u, float x) { return x; }

vec4 four_halves(uvec2 u) { return vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y)); }
vec4 key_four(uint row, uint column) {
    return four_halves(k2[(p.k_base + (row * row_width() + column) / 2u) / 2u]);
}
vec4 val_four(uint row, uint column) {
    return four_halves(v2[(p.v_base + (row * row_width() + column) / 2u) / 2u]);
}
#else
struct Raw { uvec4 lo; uvec4 hi; float scale; };

uvec4 words_4(bool values, uint at) { if (values) return v[at / 4u]; return k[at / 4u]; }
uvec2 words_2(bool values, uint at) { if (values) return v2[at / 2u]; return k2[at / 2u]; }
uint words_1(bool values, uint at) { if (values) return v1[at]; return k1[at]; }

// First word of a row
uint row_start(bool values, uint type, uint row) {
    return (values ? p.v_base : p.k_base) + row * row_words(type, row_width());
}

// The word that holds the scale of a column's group, and the scale
uint scale_word(bool values, uint type, uint start, uint column) {
    return words_1(values, start + value_words(type, row_width()) + column / 64u);
}
float scale_in(uint word, uint column) {
    return unpackHalf2x16(word >> (column / 2u & 16u)).x;
}
float group_scale(bool values, uint type, uint start, uint column) {
    return scale_in(scale_word(values, type, start, column), column);
}

// Signed bytes, and nibbles 0, 2, 4, 6 (shift 0) or 1, 3, 5, 7 (shift 4) minus 8
vec4 four_bytes(uint u) {
    int w = int(u);
    return vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8),
                bitfieldExtract(w, 24, 8));
}
vec4 four_nibbles(uint u, uint shift) {
    uint w = (u >> shift) & 0x0F0F0F0Fu;
    return vec4(w & 15u, (w >> 8u) & 15u, (w >> 16u) & 15u, w >> 24u) - 8.0;
}

Raw eight_of(bool values, uint type, uint row, uint column) {
    Raw u = Raw(uvec4(0u), uvec4(0u), 1.0);
    uint start = row_start(values, type, row);
    if (type == TYPE_F16) {
        u.lo = words_4(values, start + column / 2u);
    } else if (type == TYPE_F32) {
        u.lo = words_4(values, start + column);
        u.hi = words_4(values, start + column + 4u);
    } else {
        if (type == TYPE_Q8_0) u.lo.xy = words_2(values, start + column / 4u);
        else u.lo.x = words_1(values, start + column / 8u);
        u.scale = group_scale(values, type, start, column);
    }
    return u;
}
Raw key(uint row, uint column) { return eight_of(false, K_TYPE, row, column); }
Raw val(uint row, uint column) { return eight_of(true, V_TYPE, row, column); }

Eight unpack(uint type, Raw u) {
    if (type == TYPE_F16)
        return Eight(vec4(unpackHalf2x16(u.lo.x), unpackHalf2x16(u.lo.y)),
                     vec4(unpackHalf2x16(u.lo.z), unpackHalf2x16(u.lo.w)));
    if (type == TYPE_F32) return Eight(uintBitsToFloat(u.lo), uintBitsToFloat(u.hi));
    if (type == TYPE_Q8_0) return Eight(four_bytes(u.lo.x), four_bytes(u.lo.y));
    vec4 even = four_nibbles(u.lo.x, 0u), odd = four_nibbles(u.lo.x, 4u);
    return Eight(vec4(even.x, odd.x, even.y, odd.y), vec4(even.z, odd.z, even.w, odd.w));
}
Eight unpack_key(Raw u) { return unpack(K_TYPE, u); }
Eight unpack_val(Raw u) { return unpack(V_TYPE, u); }
float scaled(Raw u, float x) { return x * u.scale; }

vec4 four_of(bool values, uint type, uint row, uint column) {
    uint start = row_start(values, type, row);
    if (type == TYPE_F16) {
        uvec2 u = words_2(values, start + column / 2u);
        return vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y));
    }
    if (type == TYPE_F32) return uintBitsToFloat(words_4(values, start + column));
    float scale = group_scale(values, type, start, column);
    if (type == TYPE_Q8_0) return four_bytes(words_1(values, start + column / 4u)) * scale;
    uint u = words_1(values, start + column / 8u) >> (column * 4u & 16u);
    vec4 even = four_nibbles(u, 0u), odd = four_nibbles(u, 4u);
    return vec4(even.x, odd.x, even.y, odd.y) * scale;
}
vec4 key_four(uint row, uint column) { return four_of(false, K_TYPE, row, column); }
vec4 val_four(uint row, uint column) { return four_of(true, V_TYPE, row, column); }
#endif
