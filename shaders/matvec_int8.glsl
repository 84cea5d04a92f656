// Products of a few tokens in int8: as a mat-vec reads weights, once and straight from memory, but
// with up to TOKENS vectors. LANES lanes take ROWS rows; each has a chunk of every row in registers
// and multiplies it with all tokens, whose rows are those of quantize_rows.glsl. In the end lanes
// exchange their sums by halves, so that each holds whole ones of its own.
//
// spec: 0 workgroup, 1 LANES, 2 ROWS, 3 subgroup size, 4 TOKENS; ROWS and TOKENS powers of two

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint LANES = 8u;
layout(constant_id = 2) const uint ROWS = 2u;
layout(constant_id = 3) const uint SUBGROUP = 8u;
layout(constant_id = 4) const uint TOKENS = 2u;

layout(std430, set = 0, binding = 0) readonly buffer x_pairs_buf { vec2 x_pairs[]; };

const uint GROUPS = WORKGROUP / LANES;
const uint ONES = 0x01010101u;

// Signed bytes out of unsigned ones below 128, the fixed offset taken off
uvec4 signed_bytes(uvec4 v, float offset) {
#if defined(SIGNED_BYTES) || defined(MINIMA)
    return v;
#else
    return ((v | 0x80808080u) - uint(offset) * ONES) ^ 0x80808080u;
#endif
}

#include "exchange.glsl"
const uint SUMS_0 = ROWS * TOKENS;
const uint SUMS_1 = HALVED(2u, SUMS_0);
const uint SUMS_2 = HALVED(4u, SUMS_1);
const uint SUMS_3 = HALVED(8u, SUMS_2);
const uint SUMS_4 = HALVED(16u, SUMS_3);
const uint SUMS_5 = HALVED(32u, SUMS_4);
const uint SUMS_6 = HALVED(64u, SUMS_5);

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint n = step[STEP_N], lane = gl_SubgroupInvocationID % LANES;
    uint group = (gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID) / LANES;
    uint wg = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint row0 = (wg * GROUPS + group) * ROWS, chunks = p.cols / 32u;
    float acc[SUMS_0];
    FLAT for (uint i = 0u; i < SUMS_0; i++) acc[i] = 0.0;
    for (uint c = lane; c < chunks; c += LANES) {
        uvec4 a[ROWS], b[ROWS];
        vec4 scales[ROWS];
        FLAT for (uint r = 0u; r < ROWS; r++) {
            uint g = min(row0 + r, p.rows - 1u) * chunks + c;
            chunk_bytes(g, a[r], b[r]);
            a[r] = signed_bytes(a[r], QUANT_OFFSET);
            b[r] = signed_bytes(b[r], OFFSET_B);
            scales[r] = chunk_scales(g);
        }
        uint col_a = chunk_a(c), col_b = chunk_b(c);
        FLAT for (uint tok = 0u; tok < TOKENS; tok++) {
            uint start = min(tok, n - 1u) * p.x_stride;
            uvec4 xa = x[start / 4u + col_a / 16u], xb = x[start / 4u + col_b / 16u];
            vec2 za = x_pairs[start / 2u + p.cols / 8u + col_a / 32u];
#if defined(PAIRED) || defined(SCALES_16)
            vec2 zb = x_pairs[start / 2u + p.cols / 8u + col_b / 32u];
#ifdef MINIMA
            float sum_a = za.x * float(dot16(xa, uvec4(ONES)));
            float sum_b = zb.x * float(dot16(xb, uvec4(ONES)));
#endif
            FLAT for (uint r = 0u; r < ROWS; r++) {
                float s = float(dot16(a[r], xa)) * za.x * scales[r].x
                    + float(dot16(b[r], xb)) * zb.x * scales[r].z;
#ifdef MINIMA
                s += scales[r].y * sum_a + scales[r].w * sum_b;
#endif
                acc[r * TOKENS + tok] += s;
            }
#else
            FLAT for (uint r = 0u; r < ROWS; r++) {
                float s = float(dot16(a[r], xa) + dot16(b[r], xb)) * za.x;
                acc[r * TOKENS + tok] = fma(s, scales[r].x, acc[r * TOKENS + tok]);
#ifdef MINIMA
                acc[r * TOKENS + tok] = fma(scales[r].y, za.y, acc[r * TOKENS + tok]);
#endif
            }
#endif
        }
    }
    uint first = 0u;
    EXCHANGE(acc, SUMS_0, SUMS_1, (LANES / 2u))
    EXCHANGE(acc, SUMS_1, SUMS_2, (LANES / 4u))
    EXCHANGE(acc, SUMS_2, SUMS_3, (LANES / 8u))
    EXCHANGE(acc, SUMS_3, SUMS_4, (LANES / 16u))
    EXCHANGE(acc, SUMS_4, SUMS_5, (LANES / 32u))
    EXCHANGE(acc, SUMS_5, SUMS_6, (LANES / 64u))
    // lanes past the number of sums hold copies of their neighbours'
    if (lane % (LANES / min(LANES, SUMS_0)) != 0u) return;
    FLAT for (uint i = 0u; i < SUMS_6; i++) {
        uint row = row0 + (first + i) / TOKENS, tok = (first + i) % TOKENS;
        if (row >= p.rows || tok >= n) continue;
        uint at = tok * p.y_stride + p.y_off + row;
#ifdef ADD
        y[at] += acc[i];
#else
        y[at] = acc[i];
#endif
    }
}
