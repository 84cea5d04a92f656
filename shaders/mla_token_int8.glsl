// Sums over subgroups and vectors in int8 of the mla_token family, whose shaders declare SUBGROUP (at
// least 4), xq[] and xs[]: the vector that weights are multiplied with.

#include "mla_token_units.glsl"

float subgroup_sum(float v) {
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) v += subgroupShuffleXor(v, d);
    return v;
}

float subgroup_most(float v) {
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) v = max(v, subgroupShuffleXor(v, d));
    return v;
}

// Four values in int8; four neighbouring lanes share a group of 16. `z`: its scale and scaled sum
uint quantized(vec4 v, out vec2 z) {
    vec4 size = abs(v);
    float most = max(max(size.x, size.y), max(size.z, size.w));
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    vec4 q = roundEven(v * (most > 0.0 ? 127.0 / most : 0.0));
    float sum = q.x + q.y + q.z + q.w;
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    z = vec2(most / 127.0, most / 127.0 * sum);
    uvec4 b = uvec4(ivec4(q)) & 0xFFu;
    return b.x | (b.y << 8) | (b.z << 16) | (b.w << 24);
}

// Values 4 n … 4 n + 3 of x
void quantize_x(uint n, vec4 v) {
    vec2 z;
    xq[n / 4u][n & 3u] = quantized(v, z);
    if ((n & 3u) == 0u) xs[n / 4u] = z;
}
