// Quantization of a workgroup's values to int8 groups of 16: value t of `count` (a multiple of 16)
// is invocation t's `own`; they become values first, first + 1, … of the vector in yq and ys.
// scale = largest magnitude / 127, round half to even (as Q8_1 of llama.cpp, with groups of 16).
// Subgroups of 16 and more exchange values by shuffles, smaller ones through outs[].

uint packed_byte(float q, uint i) { return (uint(int(q)) & 0xFFu) << (8u * i); }

// Sum over the 16 lanes of a group
float sum16(float v) {
    FLAT for (uint d = 8u; d > 0u; d /= 2u) v += subgroupShuffleXor(v, d);
    return v;
}

void quantize_by_lanes(uint first, uint count, uint t, float own) {
    float most = abs(own);
    FLAT for (uint d = 8u; d > 0u; d /= 2u) most = max(most, subgroupShuffleXor(most, d));
    float q = roundEven(own * (most > 0.0 ? 127.0 / most : 0.0));
    float sum = sum16(q);
    uint word = packed_byte(q, t & 3u);
    word |= subgroupShuffleXor(word, 1u);
    word |= subgroupShuffleXor(word, 2u);
    if (t >= count) return;
    if ((t & 3u) == 0u) yq[(first + t) / 4u] = word;
    if ((t & 15u) == 0u) ys[(first + t) / 16u] = vec2(most / 127.0, most / 127.0 * sum);
}

void quantize_shared(uint first, uint count, uint t, float own) {
    barrier();
    if (t < count) outs[t] = own;
    barrier();
    if (t >= count || (t & 3u) != 0u) return;
    uint at = t & ~15u;
    float most = 0.0, sum = 0.0;
    for (uint i = 0u; i < 16u; i++) most = max(most, abs(outs[at + i]));
    float inverse = most > 0.0 ? 127.0 / most : 0.0;
    uint word = 0u;
    for (uint i = 0u; i < 4u; i++) word |= packed_byte(roundEven(outs[t + i] * inverse), i);
    yq[(first + t) / 4u] = word;
    if (t != at) return;
    for (uint i = 0u; i < 16u; i++) sum += roundEven(outs[at + i] * inverse);
    ys[(first + t) / 16u] = vec2(most / 127.0, most / 127.0 * sum);
}

// All invocations take part; t counts lanes subgroup by subgroup, at most WORKGROUP values.
void quantize_values(uint first, uint count, uint t, float own) {
    if (SUBGROUP >= 16u) quantize_by_lanes(first, count, t, own);
    else quantize_shared(first, count, t, own);
}

#if defined(ADD) || defined(COMPRESS)
#ifndef SQUARES
#define SQUARES ssq
#endif
// Sums of squares of the groups of 16
void store_squares(uint first, uint count, uint t, float own) {
    float sum = own * own;
    if (SUBGROUP >= 16u) {
        sum = sum16(sum);
    } else {
        barrier();
        if (t < count) outs[t] = sum;
        barrier();
        if (t < count && (t & 15u) == 0u) {
            sum = 0.0;
            for (uint i = 0u; i < 16u; i++) sum += outs[t + i];
        }
    }
    if (t < count && (t & 15u) == 0u) SQUARES[(first + t) / 16u] = sum;
}
#endif
