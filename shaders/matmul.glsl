// Body of the matmul family: a tile of BM weight rows times BN tokens per workgroup, one chunk of
// 32 columns at a time decoded into shared memory, RT x CT results per invocation.
//
// spec: 0 workgroup size = BM / RT * BN / CT, 1 BM, 2 BN, 3 RT, 4 CT; RT and CT multiples of 4.
// Shared memory: (BM + BN) * 128 bytes. Both tiles lie column by column, so that an invocation
// loads four rows or tokens at once.
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;
layout(constant_id = 1) const uint BM = 64u;
layout(constant_id = 2) const uint BN = 32u;
layout(constant_id = 3) const uint RT = 4u;
layout(constant_id = 4) const uint CT = 4u;

#include "matmul_coop_fetch.glsl"
#include "matmul_groups.glsl"

const uint NW = (BM + WORKGROUP - 1u) / WORKGROUP;       // weight chunks per invocation
const uint NX = (BN * 8u + WORKGROUP - 1u) / WORKGROUP;  // 4 values of a token each
const uint RV = RT / 4u, CV = CT / 4u;
shared vec4 wt[32u * BM / 4u];
shared vec4 xt[32u * BN / 4u];

Chunk wraw[NW];
vec4 xraw[NX];
vec4 sums[RT * CV];

uint weight_row(uint r) { return MATRIX_ROW + min(gl_WorkGroupID.y * BM + r, p.rows - 1u); }

void fetch(uint c, uint chunks, uint tok0, uint n) {
    uint t = gl_LocalInvocationID.x;
    [[unroll]] for (uint i = 0u; i < NW; i++) {
        uint r = t + i * WORKGROUP;
        if (BM % WORKGROUP == 0u || r < BM) wraw[i] = chunk_fetch(weight_row(r) * chunks + c);
    }
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        uint e = t + i * WORKGROUP, k = e / BN, tok = min(tok0 + e % BN, n - 1u);
        if (BN * 8u % WORKGROUP == 0u || k < 8u)
            xraw[i] = x[(X_ROW(tok) + (k < 4u ? chunk_a(c) : chunk_b(c) - 16u)) / 4u + k];
    }
}

void put_weight(uint k, uint r, float value) { wt[k * (BM / 4u) + r / 4u][r & 3u] = value; }

void put_chunk(uint r, uint g, Chunk c) {
#if defined(F32) || defined(F16) || defined(BF16)
    [[unroll]] for (uint i = 0u; i < RAW * 4u; i++) {
        uint word = c.q[i / 4u][i & 3u];
#if defined(F32)
        put_weight(i, r, uintBitsToFloat(word));
#else
#if defined(F16)
        vec2 pair = unpackHalf2x16(word);
#else
        vec2 pair = uintBitsToFloat(uvec2(word << 16, word & 0xFFFF0000u));
#endif
        put_weight(2u * i, r, pair.x);
        put_weight(2u * i + 1u, r, pair.y);
#endif
    }
#else
    uvec4 lo, hi;
    chunk_bytes_of(g, c, lo, hi);
    vec4 s = chunk_scales_of(g, c);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        vec4 a = s.x * (QUANTS4(lo[i]) - QUANT_OFFSET) + s.y;
        vec4 b = s.z * (QUANTS4(hi[i]) - OFFSET_B) + s.w;
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            put_weight(4u * i + j, r, a[j]);
            put_weight(16u + 4u * i + j, r, b[j]);
        }
    }
#endif
}

void put(uint c, uint chunks) {
    uint t = gl_LocalInvocationID.x;
    [[unroll]] for (uint i = 0u; i < NW; i++) {
        uint r = t + i * WORKGROUP;
        if (BM % WORKGROUP == 0u || r < BM) put_chunk(r, weight_row(r) * chunks + c, wraw[i]);
    }
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        uint e = t + i * WORKGROUP, k = e / BN * 4u, tok = e % BN;
        if (BN * 8u % WORKGROUP != 0u && k >= 32u) break;
        [[unroll]] for (uint j = 0u; j < 4u; j++)
            xt[(k + j) * (BN / 4u) + tok / 4u][tok & 3u] = xraw[i][j];
    }
}

// Rows 4 (ti + BM / RT * i) …, tokens 4 (tj + BN / CT * j) …
void multiply(uint ti, uint tj) {
    for (uint k = 0u; k < 32u; k++) {
        vec4 wv[RV], xv[CV];
        [[unroll]] for (uint i = 0u; i < RV; i++) wv[i] = wt[k * (BM / 4u) + ti + BM / RT * i];
        [[unroll]] for (uint j = 0u; j < CV; j++) xv[j] = xt[k * (BN / 4u) + tj + BN / CT * j];
        [[unroll]] for (uint i = 0u; i < RT; i++)
            [[unroll]] for (uint j = 0u; j < CV; j++)
                sums[i * CV + j] = fma(vec4(wv[i / 4u][i & 3u]), xv[j], sums[i * CV + j]);
    }
}

void main() {
    uint n = TOKENS, tok0 = FIRST_TOKEN + gl_WorkGroupID.x * BN, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || tok0 >= n) return;
    uint ti = t % (BM / RT), tj = t / (BM / RT), chunks = p.cols / 32u;
    [[unroll]] for (uint i = 0u; i < RT * CV; i++) sums[i] = vec4(0.0);
    fetch(0u, chunks, tok0, n);
    for (uint c = 0u; c < chunks; c++) {
        put(c, chunks);
        barrier();
        if (c + 1u < chunks) fetch(c + 1u, chunks, tok0, n);
        multiply(ti, tj);
        barrier();
    }
    [[unroll]] for (uint j = 0u; j < CT; j++) {
        uint tok = tok0 + 4u * (tj + BN / CT * (j / 4u)) + j % 4u;
        [[unroll]] for (uint i = 0u; i < RT; i++) {
            uint row = gl_WorkGroupID.y * BM + 4u * (ti + BM / RT * (i / 4u)) + i % 4u;
            uint at = Y_ROW(tok) + row;
            if (tok >= n || row >= p.rows) continue;
#ifdef ADD
            y[at] += sums[i * CV + j / 4u][j % 4u];
#else
            y[at] = sums[i * CV + j / 4u][j % 4u];
#endif
        }
    }
}
