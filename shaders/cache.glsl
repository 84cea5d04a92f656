// Where the keys and values of a position lie. A cache has a row per position: its
// n_head_kv * head_dim values in order. kernels/cache_rows.py describes the same rows in NumPy.
// Layers that see a window only keep the last RING positions, in rows that are used again and
// again. The stem declares RING, a specialization constant: without a ring it is 0, and nothing is
// computed.

// The row of a position
uint key_row(uint pos) { return RING == 0u ? pos : pos % RING; }

#ifdef ANY
// Types of the two caches; the shader declares the specialization constants K_TYPE and V_TYPE.
// Q8_0 and Q4_0: groups of 32 values of a row, all quants of the row (four or eight a word, the
// first in the lowest bits), then its float16 scales, padded to 16 bytes.
const uint TYPE_F16 = 0u, TYPE_F32 = 1u, TYPE_Q8_0 = 2u, TYPE_Q4_0 = 3u;

// Words of a row's values; in quantized rows the scales follow
uint value_words(uint type, uint width) {
    if (type == TYPE_F16) return width / 2u;
    if (type == TYPE_F32) return width;
    return (width + 31u) / 32u * (type == TYPE_Q8_0 ? 8u : 4u);
}

// Words from row to row
uint row_words(uint type, uint width) {
    uint scales = type == TYPE_Q8_0 || type == TYPE_Q4_0 ? (width + 255u) / 256u * 4u : 0u;
    return value_words(type, width) + scales;
}
#endif

#if defined(KV16) || defined(KV32)
// Two neighbouring values of a cache row, at value `at` of a layer: one word (KV16) or two (KV32).
void store_cached(bool to_v, uint at, float a, float b) {
#ifdef KV16
    uint word = packHalf2x16(vec2(a, b));
    if (to_v) v[p.v_base + at / 2u] = word;
    else k[p.k_base + at / 2u] = word;
#else
    uvec2 pair = floatBitsToUint(vec2(a, b));
    if (to_v) { v[p.v_base + at] = pair.x; v[p.v_base + at + 1u] = pair.y; }
    else { k[p.k_base + at] = pair.x; k[p.k_base + at + 1u] = pair.y; }
#endif
}
#endif
