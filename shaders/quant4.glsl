// Quantization to int8 groups of 16 (as quant16.glsl) where a lane has four values.

// Four values; four neighbouring lanes share a group of 16. `z`: its scale and scaled sum
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
