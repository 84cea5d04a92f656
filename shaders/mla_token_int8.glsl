// Sums over subgroups and vectors in int8 of the mla_token family, whose shaders declare SUBGROUP (at
// least 4), xq[] and xs[]: the vector that weights are multiplied with.

#include "mla_token_units.glsl"
#include "quant4.glsl"

float subgroup_sum(float v) {
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) v += subgroupShuffleXor(v, d);
    return v;
}

float subgroup_most(float v) {
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) v = max(v, subgroupShuffleXor(v, d));
    return v;
}

// Values 4 n … 4 n + 3 of x
void quantize_x(uint n, vec4 v) {
    vec2 z;
    xq[n / 4u][n & 3u] = quantized(v, z);
    if ((n & 3u) == 0u) xs[n / 4u] = z;
}
