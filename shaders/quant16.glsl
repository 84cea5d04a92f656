// Quantization of values in shared memory to int8 groups of 16: outs[] holds `count` values
// (a multiple of 16), which become values first, first + 1, … of the vector in yq and ys.
// scale = largest magnitude / 127, round half to even (as Q8_1 of llama.cpp, with groups of 16).

float group_scale(uint at, out float inverse) {
    float most = 0.0;
    for (uint i = 0u; i < 16u; i++) most = max(most, abs(outs[at + i]));
    inverse = most > 0.0 ? 127.0 / most : 0.0;
    return most / 127.0;
}

void quantize_outs(uint first, uint count, uint t, uint stride) {
    for (uint word = t; word < count / 4u; word += stride) {
        uint at = word / 4u * 16u;  // the word's group
        float inverse, scale = group_scale(at, inverse);
        uint packed = 0u;
        for (uint i = 0u; i < 4u; i++) {
            int q = int(roundEven(outs[word * 4u + i] * inverse));
            packed |= (uint(q) & 0xFFu) << (8u * i);
        }
        yq[first / 4u + word] = packed;
        if ((word & 3u) == 0u) {
            float sum = 0.0;
            for (uint i = 0u; i < 16u; i++) sum += roundEven(outs[at + i] * inverse);
            ys[first / 16u + word / 4u] = vec2(scale, scale * sum);
        }
    }
}
