// Pieces of cache rows that a lane of attention_tiles.glsl loads at once, for float16, Q8_0 and
// Q4_0 caches: 16 bytes of a key (8 of Q4_0), 8 bytes of a value row (4 of Q4_0). A piece lies in
// one group of 32 values, since heads are multiples of 16: its scale is half a word. K_TYPE and
// V_TYPE are constants, so that the driver drops what is not of their type. The stem includes
// cache_read.glsl.

const uint KEY_PIECE = K_TYPE == TYPE_F16 ? 8u : 16u;
const uint VALUE_PIECE = V_TYPE == TYPE_F16 ? 4u : 8u;
const uint FOURS = VALUE_PIECE / 4u;
const uint PIECES = HEAD_DIM / 16u;  // of a query in integers
const uint QUERY = K_TYPE == TYPE_F16 ? 1u : GROUP * PIECES;

// The query for quantized keys, in integers of 16 bits: 256 * high + low, times query_scale.x. With
// 8 bits scores would lose 2e-5 of NMSE (step^2 / 12), so they lose 3e-10. query_scale.y: 8 * the
// sum of the integers.
shared uvec4 query_high[QUERY], query_low[QUERY];
shared vec2 query_scale[QUERY];

#include "dot4.glsl"

uint low_bytes(ivec4 n) {
    uvec4 b = uvec4(n) & 0xFFu;
    return b.x | b.y << 8u | b.z << 16u | b.w << 24u;
}

// Queries of the GROUP heads from first_head on; a piece of 16 values per invocation.
void quantize_query(uint first_head, uint t) {
    for (uint e = t; e < QUERY; e += WORKGROUP) {
        vec4 x[4];
        float most = 0.0;
        bool finite = true;
        FLAT for (uint j = 0u; j < 4u; j++) {
            x[j] = qkv[first_head * (HEAD_DIM / 4u) + e * 4u + j];
            vec4 a = abs(x[j]);
            most = max(most, max(max(a.x, a.y), max(a.z, a.w)));
            finite = finite && all(lessThan(floatBitsToUint(a), uvec4(0x7F800000u)));
        }
        ivec4 n[4];
        ivec4 sums = ivec4(0);
        FLAT for (uint j = 0u; j < 4u; j++) {
            n[j] = ivec4(roundEven(x[j] * (most > 0.0 ? 32512.0 / most : 0.0)));
            sums += n[j];
        }
        if (K_TYPE == TYPE_Q4_0) {  // in the order of key_bytes
            ivec4 odd = ivec4(n[0].yw, n[1].yw), last_odd = ivec4(n[2].yw, n[3].yw);
            n[0] = ivec4(n[0].xz, n[1].xz);
            n[2] = ivec4(n[2].xz, n[3].xz);
            n[1] = odd;
            n[3] = last_odd;
        }
        FLAT for (uint j = 0u; j < 4u; j++) {
            query_high[e][j] = low_bytes((n[j] + 128) >> 8);
            query_low[e][j] = low_bytes(n[j]);
        }
        float scale = finite ? most / 32512.0 * p.scale : uintBitsToFloat(0x7FC00000u);
        query_scale[e] = vec2(scale, 8.0 * float(sums.x + sums.y + sums.z + sums.w));
    }
}

// A key's values from `column` (in the row) on
uvec4 key_piece(uint start, uint column) {
    if (K_TYPE == TYPE_Q4_0) return uvec4(words_2(false, start + column / 8u), 0u, 0u);
    return words_4(false, start + column / (K_TYPE == TYPE_F16 ? 2u : 4u));
}

// 16 quants as bytes; of Q4_0, then 8 too large, values 0 2 4 6, 1 3 5 7, 8 10 12 14, 9 11 13 15
uvec4 key_bytes(uvec4 e) {
    if (K_TYPE == TYPE_Q8_0) return e;
    return uvec4(e.x, e.x >> 4u, e.y, e.y >> 4u) & 0x0F0F0F0Fu;
}

// Product of a query's piece with 16 quants
float packed_product(uvec4 bytes, uvec4 high, uvec4 low, vec2 scale) {
    float sum = float(dot16(bytes, high) * 256 + dot16(bytes, low));
    return (K_TYPE == TYPE_Q4_0 ? sum - scale.y : sum) * scale.x;
}

uvec2 value_piece(uint start, uint column) {
    if (V_TYPE == TYPE_Q4_0) return uvec2(words_1(true, start + column / 8u), 0u);
    return words_2(true, start + column / (V_TYPE == TYPE_F16 ? 2u : 4u));
}

// Values 4 f … 4 f + 3 of a piece, but for its scale
vec4 value_four(uvec2 e, uint f) {
    if (V_TYPE == TYPE_F16) return vec4(unpackHalf2x16(e.x), unpackHalf2x16(e.y));
    if (V_TYPE == TYPE_Q8_0) return four_bytes(f == 0u ? e.x : e.y);
    uint w = e.x >> (16u * f);
    return vec4(w & 15u, (w >> 4u) & 15u, (w >> 8u) & 15u, (w >> 12u) & 15u) - 8.0;
}

// The word with the scale of a piece; nothing is loaded of float16
uint piece_scale(bool values, uint type, uint start, uint column) {
    return type == TYPE_F16 ? 0u : scale_word(values, type, start, column);
}
