// INT8, INT4_G32, INT4_G64, INT4_G128 and INT3_G64: formats of int containers, one float32 scale
// per block of 32, 64 or 128 values. engine/int_blocks.py orders the bytes of a chunk so that
// shifts and masks of whole vectors give its quants.

#if defined(INT4_G128)
const uint CHUNKS_LOG = 2u;  // chunks per scale: 4
#elif defined(INT4_G32)
const uint CHUNKS_LOG = 0u;
#else
const uint CHUNKS_LOG = 1u;
#endif
#if defined(INT8)
const uint RAW = 2u;
#else
const uint RAW = 1u;
#endif

struct Chunk { uvec4 q[RAW]; float d; };

Chunk chunk_fetch(uint g) {
    Chunk c;
#if defined(INT8)
    uint at = p.w_p0 / 4u + g * 2u;
    c.q[0] = w4[at];
    c.q[1] = w4[at + 1u];
    c.d = uintBitsToFloat(w[p.w_p1 + (g >> CHUNKS_LOG)]);
#elif defined(INT3_G64)
    uint at = p.w_p0 + g * 2u;
    c.q[0] = uvec4(w[at], w[at + 1u], w[p.w_p1 + g], 0u);
    c.d = uintBitsToFloat(w[p.w_p2 + (g >> CHUNKS_LOG)]);
#else
    c.q[0] = w4[p.w_p0 / 4u + g];
    c.d = uintBitsToFloat(w[p.w_p1 + (g >> CHUNKS_LOG)]);
#endif
    return c;
}

void chunk_bytes_of(uint g, Chunk c, out uvec4 a, out uvec4 b) {
#if defined(INT8)
    a = c.q[0];
    b = c.q[1];
#elif defined(INT3_G64)
    // low bit pairs of group a in x, of b in y; the high bits of both in z, eight to a byte
    const uvec4 PAIRS = uvec4(0, 2, 4, 6);
    uint z = c.q[0].z;
    a = ((uvec4(c.q[0].x) >> PAIRS) & 0x03030303u)
        | (uvec4(z << 2, z << 1, z, z >> 1) & 0x04040404u);
    b = ((uvec4(c.q[0].y) >> PAIRS) & 0x03030303u)
        | ((uvec4(z) >> uvec4(2, 3, 4, 5)) & 0x04040404u);
#else
    a = c.q[0] & 0x0F0F0F0Fu;
    b = (c.q[0] >> 4) & 0x0F0F0F0Fu;
#endif
}

vec4 chunk_scales_of(uint g, Chunk c) { return vec4(c.d, 0.0, c.d, 0.0); }
