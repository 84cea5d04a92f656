// TQ1_0: five base-3 digits a byte, as fractions: digit n is the whole part of byte * 3^n mod 256
// times 3 / 256. Chunks 0 … 4 are digit 0 … 4 of 32 bytes, 5 … 7 the digits of 16 bytes and, in
// the last group, four digits of 4 bytes. Layout: block_tq1_0 of ggml-common.h.

const uint RAW = 2u;
struct Chunk { uvec4 q[RAW]; uvec4 s; };

Chunk chunk_fetch(uint g) {
    Chunk c;
    uint block = g >> 3, at = p.w_p0 / 4u + block * 3u;
    bool wide = (g & 7u) < 5u;
    c.q[0] = w4[wide ? at : at + 2u];
    c.q[1] = w4[wide ? at + 1u : at + 2u];
    c.s.xy = uvec2(w[p.w_p2 + (block >> 1)], w[p.w_p1 + block]);
    return c;
}

uint power_of_3(uint n) {
    return ((n & 1u) != 0u ? 3u : 1u) * ((n & 2u) != 0u ? 9u : 1u) * ((n & 4u) != 0u ? 81u : 1u);
}

// Digit n of the bytes of v, 0 … 2
uvec4 digits(uvec4 v, uvec4 n) {
    uvec4 power = uvec4(power_of_3(n.x), power_of_3(n.y), power_of_3(n.z), power_of_3(n.w));
    uvec4 even = ((v & 0x00FF00FFu) * power) & 0x00FF00FFu;
    uvec4 odd = (((v >> 8) & 0x00FF00FFu) * power) & 0x00FF00FFu;
    return (((even * 3u) >> 8) & 0x00FF00FFu) | ((odd * 3u) & 0xFF00FF00u);
}

void chunk_bytes_of(uint g, Chunk c, out uvec4 a, out uvec4 b) {
    uint i = g & 7u;
    if (i < 5u) {
        a = digits(c.q[0], uvec4(i));
        b = digits(c.q[1], uvec4(i));
    } else {
        a = digits(c.q[0], uvec4(2u * i - 10u));
        b = i < 7u ? digits(c.q[1], uvec4(2u * i - 9u)) : digits(uvec4(c.s.y), uvec4(0, 1, 2, 3));
    }
}

vec4 chunk_scales_of(uint g, Chunk c) {
    vec2 pair = unpackHalf2x16(c.s.x);
    float d = (g & 8u) == 0u ? pair.x : pair.y;
    return vec4(d, 0.0, d, 0.0);
}
