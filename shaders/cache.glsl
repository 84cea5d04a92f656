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
