// Body of the products of a batch in int8: a workgroup makes BM weight rows times BN tokens, an
// invocation RT x CT of them, 64 columns per step. A step is two units of 32 columns, each one
// block of the activations (quantize_rows.glsl) and one scale of the weights, or two (SCALES_16).
//
// spec: 0 workgroup size = BM / RT * BN / CT, 1 BM, 2 BN, 3 RT, 4 CT.
// Shared memory: (BM + BN) * 64 bytes of quants, and 4 * (BM * SCALES * 2 + BN * 4) of scales; with
// minima per 16 columns (Q2_K) as much again for the tokens, whose sums must be as fine.
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;
layout(constant_id = 1) const uint BM = 64u;
layout(constant_id = 2) const uint BN = 64u;
layout(constant_id = 3) const uint RT = 8u;
layout(constant_id = 4) const uint CT = 4u;

#include "matmul_coop_fetch.glsl"
#include "matmul_groups.glsl"

#include "dot4.glsl"

#if defined(SCALES_16)
const uint SCALES = 4u;  // per row and step: one for each slice of 16 columns
#else
const uint SCALES = 2u;  // one for each unit
#endif

const uint NW = (BM * 2u + WORKGROUP - 1u) / WORKGROUP;  // weight chunks per invocation
const uint NX = (BN * 4u + WORKGROUP - 1u) / WORKGROUP;  // 16 values of a token each
const uint NS = (BN * 2u + WORKGROUP - 1u) / WORKGROUP;  // block scales
shared uvec4 wq[4u * BM];  // slice of 16 columns, row
shared uvec4 xq[4u * BN];
shared float wd[SCALES * BM];
#ifdef MINIMA
shared float wmin[SCALES * BM];
#ifdef SCALES_16
shared float xsum[4u * BN];  // sum of a slice's quants
#endif
#endif
shared vec2 xd[2u * BN];  // (scale, scale * sum of quants) by unit and token

layout(std430, set = 0, binding = 0) readonly buffer x_pairs_buf { uvec2 x_pairs[]; };

Chunk wraw[NW];
uvec4 xraw[NX];
uvec2 xscale[NS];

// Signed bytes out of unsigned ones below 128, the fixed offset taken off
uvec4 signed_bytes(uvec4 v, float offset) {
#if defined(SIGNED_BYTES) || defined(MINIMA)
    return v;
#else
    return ((v | 0x80808080u) - uint(offset) * 0x01010101u) ^ 0x80808080u;
#endif
}

uint weight_row(uint r) { return MATRIX_ROW + min(gl_WorkGroupID.y * BM + r, p.rows - 1u); }

// First column of unit u of the step that starts at chunk c0 (even); past the end: the last block
uint unit_column(uint c0, uint u) {
#ifdef PAIRED
    return u == 0u ? chunk_a(c0) : chunk_b(c0);
#else
    return min(c0 + u, p.cols / 32u - 1u) * 32u;
#endif
}

void fetch(uint c0, uint chunks, uint tok0, uint n) {
    uint t = gl_LocalInvocationID.x;
    [[unroll]] for (uint i = 0u; i < NW; i++) {
        uint e = t + i * WORKGROUP;
        if (BM * 2u % WORKGROUP == 0u || e < BM * 2u)
            wraw[i] = chunk_fetch(weight_row(e / 2u) * chunks + min(c0 + e % 2u, chunks - 1u));
    }
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        uint e = t + i * WORKGROUP, tok = min(tok0 + e / 4u, n - 1u), q = e % 4u;
        if (BN * 4u % WORKGROUP == 0u || e < BN * 4u)
            xraw[i] = x[X_ROW(tok) / 4u + unit_column(c0, q / 2u) / 16u + q % 2u];
    }
    [[unroll]] for (uint i = 0u; i < NS; i++) {
        uint e = t + i * WORKGROUP, tok = min(tok0 + e / 2u, n - 1u);
        if (BN * 2u % WORKGROUP == 0u || e < BN * 2u)
            xscale[i] = x_pairs[X_ROW(tok) / 2u + p.cols / 8u
                                + unit_column(c0, e % 2u) / 32u];
    }
}

void put_chunk(uint row, uint part, uint g, Chunk c, bool past) {
    uvec4 a, b;
    chunk_bytes_of(g, c, a, b);
    vec4 s = past ? vec4(0.0) : chunk_scales_of(g, c);
#ifdef PAIRED
    uint slice_a = part, slice_b = 2u + part;  // both chunks have columns of both units
#else
    uint slice_a = 2u * part, slice_b = 2u * part + 1u;  // a chunk is a unit
#endif
    wq[slice_a * BM + row] = signed_bytes(a, QUANT_OFFSET);
    wq[slice_b * BM + row] = signed_bytes(b, OFFSET_B);
#if defined(SCALES_16)
    wd[slice_a * BM + row] = s.x;
    wd[slice_b * BM + row] = s.z;
#ifdef MINIMA
    wmin[slice_a * BM + row] = s.y;
    wmin[slice_b * BM + row] = s.w;
#endif
#elif defined(PAIRED)
    // the two chunks agree on scales: each writes one unit's
    wd[part * BM + row] = part == 0u ? s.x : s.z;
    wmin[part * BM + row] = part == 0u ? s.y : s.w;
#else
    wd[part * BM + row] = s.x;
#ifdef MINIMA
    wmin[part * BM + row] = s.y;
#endif
#endif
}

void put(uint c0, uint chunks) {
    uint t = gl_LocalInvocationID.x;
    [[unroll]] for (uint i = 0u; i < NW; i++) {
        uint e = t + i * WORKGROUP, c = c0 + e % 2u;
        if (BM * 2u % WORKGROUP == 0u || e < BM * 2u)
            put_chunk(e / 2u, e % 2u, weight_row(e / 2u) * chunks + c, wraw[i], c >= chunks);
    }
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        uint e = t + i * WORKGROUP;
        if (BN * 4u % WORKGROUP != 0u && e >= BN * 4u) break;
        xq[e % 4u * BN + e / 4u] = xraw[i];
#if defined(SCALES_16) && defined(MINIMA)
        xsum[e % 4u * BN + e / 4u] = float(dot16(xraw[i], uvec4(0x01010101u)));
#endif
    }
    [[unroll]] for (uint i = 0u; i < NS; i++) {
        uint e = t + i * WORKGROUP;
        if (BN * 2u % WORKGROUP == 0u || e < BN * 2u)
            xd[e % 2u * BN + e / 2u] = uintBitsToFloat(xscale[i]);
    }
}

float sums[RT * CT];

// Rows ti + BM / RT * i times tokens tj + BN / CT * j
void multiply(uint ti, uint tj) {
    [[unroll]] for (uint u = 0u; u < 2u; u++) {
        uvec4 wa[RT], wb[RT];
        [[unroll]] for (uint i = 0u; i < RT; i++) {
            wa[i] = wq[2u * u * BM + ti + BM / RT * i];
            wb[i] = wq[(2u * u + 1u) * BM + ti + BM / RT * i];
        }
        [[unroll]] for (uint j = 0u; j < CT; j++) {
            uint tok = tj + BN / CT * j;
            uvec4 xa = xq[2u * u * BN + tok], xb = xq[(2u * u + 1u) * BN + tok];
            vec2 z = xd[u * BN + tok];
            [[unroll]] for (uint i = 0u; i < RT; i++) {
                uint r = ti + BM / RT * i;
#if defined(SCALES_16)
                float s = float(dot16(wa[i], xa)) * wd[2u * u * BM + r]
                    + float(dot16(wb[i], xb)) * wd[(2u * u + 1u) * BM + r];
#ifdef MINIMA
                s += xsum[2u * u * BN + tok] * wmin[2u * u * BM + r]
                    + xsum[(2u * u + 1u) * BN + tok] * wmin[(2u * u + 1u) * BM + r];
#endif
                sums[i * CT + j] = fma(s, z.x, sums[i * CT + j]);
#else
                float s = float(dot16(wa[i], xa) + dot16(wb[i], xb)) * z.x;
                sums[i * CT + j] = fma(s, wd[u * BM + r], sums[i * CT + j]);
#ifdef MINIMA
                sums[i * CT + j] = fma(wmin[u * BM + r], z.y, sums[i * CT + j]);
#endif
#endif
            }
        }
    }
}

void main() {
    uint n = TOKENS, tok0 = FIRST_TOKEN + gl_WorkGroupID.x * BN, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || tok0 >= n) return;
    uint ti = t % (BM / RT), tj = t / (BM / RT), chunks = p.cols / 32u;
    [[unroll]] for (uint i = 0u; i < RT * CT; i++) sums[i] = 0.0;
    fetch(0u, chunks, tok0, n);
    for (uint c = 0u; c < chunks; c += 2u) {
        put(c, chunks);
        barrier();
        if (c + 2u < chunks) fetch(c + 2u, chunks, tok0, n);
        multiply(ti, tj);
        barrier();
    }
    [[unroll]] for (uint j = 0u; j < CT; j++) {
        uint tok = tok0 + tj + BN / CT * j;
        [[unroll]] for (uint i = 0u; i < RT; i++) {
            uint row = gl_WorkGroupID.y * BM + ti + BM / RT * i;
            if (tok >= n || row >= p.rows) continue;
#ifdef ADD
            y[Y_ROW(tok) + row] += sums[i * CT + j];
#else
            y[Y_ROW(tok) + row] = sums[i * CT + j];
#endif
        }
    }
}
