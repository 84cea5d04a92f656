// A row of the embedding matrix in float32, and times a gain as int8 groups of 16. The includer
// declares w, g, x, yq, ys, ssq, the push words n_embd and scale, and includes blocks.glsl.

// Group i of the row, half of a chunk.
void embed_group(uint row, uint i) {
    uint chunk = i / 2u;
    bool second = (i & 1u) != 0u;
    uint column = second ? chunk_b(chunk) : chunk_a(chunk);
    vec4 gain[4], a[4], b[4]; // all reads before the first write, which may hold up what follows
    FLAT for (uint k = 0u; k < 4u; k++) gain[k] = uintBitsToFloat(g4[(p.g_p0 + column) / 4u + k]);
    chunk_values(row * (p.n_embd / 32u) + chunk, a, b);
    float most = 0.0, squares = 0.0, sum = 0.0;
    FLAT for (uint k = 0u; k < 4u; k++) {
        vec4 v = (second ? b[k] : a[k]) * p.scale;
        x[column / 4u + k] = v;
        squares += dot(v, v);
        gain[k] *= v;
        vec4 size = abs(gain[k]);
        most = max(most, max(max(size.x, size.y), max(size.z, size.w)));
    }
    float inverse = most > 0.0 ? 127.0 / most : 0.0;
    uvec4 packed;
    FLAT for (uint k = 0u; k < 4u; k++) {
        vec4 q = roundEven(gain[k] * inverse);
        sum += dot(q, vec4(1.0));
        uvec4 u = uvec4(ivec4(q)) & 0xFFu;
        packed[k] = u.x | (u.y << 8) | (u.z << 16) | (u.w << 24);
    }
    yq[column / 16u] = packed;
    ys[column / 16u] = vec2(most / 127.0, most / 127.0 * sum);
    ssq[column / 16u] = squares;
}
