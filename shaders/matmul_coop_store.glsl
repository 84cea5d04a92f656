// Results of matmul_coop.glsl: straight from the matrices where a whole one fits and is aligned,
// through shared memory at ragged edges. Matrices hold rows of weights by tokens, so a column is
// a run of one token's values.

// Value of row m, token t of matrix (i, j) that lies in shared memory from word 4 * base on
float staged(uint base, uint e) { return uintBitsToFloat(tile[base + e / 4u][e & 3u]); }

#ifdef GATED
#include "gate.glsl"

void gate(uint i, uint j) {
    [[unroll]] for (uint e = 0u; e < CELLS(sums[0]); e++) {
        float g = CELL(sums[i * NJ + j], e), up = CELL(sums[(i + MI / 2u) * NJ + j], e);
        CELL(sums[i * NJ + j], e) = activated(g) * up;
    }
}
#endif

void store_edge(uint which, uint row, uint tok, uint n) {
    uint base = gl_SubgroupID * (TM * TN / 4u);  // of the first team
    coopMatStore(sums[which], tile, base, TM / 4u, gl_CooperativeMatrixLayoutColumnMajor);
    subgroup_exchange();
#ifdef GATED
    for (uint e = gl_SubgroupInvocationID * 2u; e < TM * TN; e += gl_SubgroupSize * 2u)
        if (row + e % TM < p.rows && tok + e / TM < n)
            y[(Y_ROW(tok + e / TM) + row + e % TM) / 2u] =
                half_pair(staged(base, e), staged(base, e + 1u));
#else
    for (uint e = gl_SubgroupInvocationID; e < TM * TN; e += gl_SubgroupSize) {
        uint at = Y_ROW(tok + e / TM) + row + e % TM;
        if (row + e % TM >= p.rows || tok + e / TM >= n) continue;
#ifdef ADD
        y[at] += staged(base, e);
#else
        y[at] = staged(base, e);
#endif
    }
#endif
    subgroup_exchange();
}

void store_whole(uint which, uint at) {
#ifdef GATED
    MATRIX_HALF halves = MATRIX_HALF(sums[which]);
    coopMatStore(halves, y, at / 2u, p.y_stride / 2u, gl_CooperativeMatrixLayoutColumnMajor);
#else
#ifdef ADD
    MATRIX_C before;
    coopMatLoad(before, y, at, p.y_stride, gl_CooperativeMatrixLayoutColumnMajor);
    sums[which] = sums[which] + before;
#endif
    coopMatStore(sums[which], y, at, p.y_stride, gl_CooperativeMatrixLayoutColumnMajor);
#endif
}

void store(uint tok0, uint wm, uint n) {
#ifdef GATED
    const uint ROWS = MI / 2u, ALIGNED = 7u;
    uint row0 = gl_WorkGroupID.y * (BM / 2u) + wm / 2u;
#else
    const uint ROWS = MI, ALIGNED = 3u;
    uint row0 = gl_WorkGroupID.y * BM + wm;
#endif
    bool aligned = ((p.y_stride | p.y_off) & ALIGNED) == 0u;
    [[unroll]] for (uint i = 0u; i < ROWS; i++) {
        [[unroll]] for (uint j = 0u; j < NJ; j++) {
            uint row = row0 + i * TM, tok = tok0 + j * TN;
            if (row >= p.rows || tok >= n) continue;
#ifdef GATED
            gate(i, j);
#endif
            if (aligned && row + TM <= p.rows && tok + TN <= n)
                store_whole(i * NJ + j, Y_ROW(tok) + row);
            else store_edge(i * NJ + j, row, tok, n);
        }
    }
}
