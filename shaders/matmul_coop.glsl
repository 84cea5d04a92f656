// Body of the cooperative matrix products: a workgroup makes BM weight rows times BN tokens, each
// subgroup WM x WN of them. KS weight chunks of every row are decoded to f16 in shared memory
// while the words of the next ones are on their way; so are the activations, f16 or f32 in memory.
// SPLIT teams of subgroups share the columns of one tile, for shapes with few tiles.
//
// spec: 0 workgroup size = subgroup size * TEAM * SPLIT, 1 BM, 2 BN, 3 WM, 4 WN, 5 KS, 6 STAGES,
// 7 SPLIT, 8 TM, 9 TN, 10 TK, 11 X_WIDE (1: x is f32); for experts 12 RAGGED (1: tiles have fewer
// tokens as a rule, and what they lack is left out).
// Shared memory: SPLIT * STAGES * (BM + BN) * (KS * 4 + 1) * 16 bytes.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;
layout(constant_id = 1) const uint BM = 64u;
layout(constant_id = 2) const uint BN = 64u;
layout(constant_id = 3) const uint WM = 32u;
layout(constant_id = 4) const uint WN = 32u;
layout(constant_id = 5) const uint KS = 1u;
layout(constant_id = 6) const uint STAGES = 1u;
layout(constant_id = 7) const uint SPLIT = 1u;
layout(constant_id = 8) const uint TM = 16u;
layout(constant_id = 9) const uint TN = 16u;
layout(constant_id = 10) const uint TK = 16u;
layout(constant_id = 11) const uint X_WIDE = 0u;
#ifdef EXPERTS
layout(constant_id = 12) const uint RAGGED = 0u;
#else
const uint RAGGED = 0u;
#endif

#include "matmul_coop_types.glsl"
#include "matmul_coop_blocks.glsl"
#include "matmul_groups.glsl"

const uint PITCH = KS * 4u + 1u;  // 16-byte vectors per row; odd, so that rows change banks
const uint STAGE = (BM + BN) * PITCH;
const uint SLICE = STAGES * STAGE;                 // shared memory of a team
const uint TEAM = BM / WM * (BN / WN);             // subgroups of a team
const uint CREW = WORKGROUP / SPLIT;               // invocations of a team
const uint PIECES = KS * 4u;                       // 8 values of a token each
const uint NW = (BM * KS + CREW - 1u) / CREW;      // weight chunks per invocation
const uint NX = (BN * PIECES + CREW - 1u) / CREW;  // pieces per invocation
const uint MI = WM / TM, NJ = WN / TN;
shared uvec4 tile[SPLIT * SLICE];

Chunk wraw[NW];
uvec4 xraw[NX * (1u + X_WIDE)];
MATRIX_C sums[MI * NJ];

// Row of the weights for row r of the tile; the gated form has WM / 2 gates, then their partners
uint weight_row(uint r) {
#ifdef GATED
    uint row = gl_WorkGroupID.y * (BM / 2u) + r / WM * (WM / 2u) + r % (WM / 2u);
    return MATRIX_ROW + min(row, p.rows - 1u) + (r % WM >= WM / 2u ? PARTNER : 0u);
#else
    return MATRIX_ROW + min(gl_WorkGroupID.y * BM + r, p.rows - 1u);
#endif
}

void fetch(uint c0, uint chunks, uint tok0, uint n) {
    uint t = gl_LocalInvocationID.x % CREW;
    [[unroll]] for (uint i = 0u; i < NW; i++) {
        uint e = t + i * CREW;
        if (BM * KS % CREW == 0u || e < BM * KS)
            wraw[i] = chunk_fetch(weight_row(e / KS) * chunks + min(c0 + e % KS, chunks - 1u));
    }
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        uint e = t + i * CREW, q = e % PIECES;
        if (BN * PIECES % CREW != 0u && e >= BN * PIECES) break;
        if (RAGGED == 1u && tok0 + e / PIECES >= n) break;
        uint c = min(c0 + q / 4u, chunks - 1u), tok = min(tok0 + e / PIECES, n - 1u);
        uint col = ((q & 2u) == 0u ? chunk_a(c) : chunk_b(c)) + (q & 1u) * 8u;
        if (X_WIDE == 0u) {
            xraw[i] = x[(X_ROW(tok) + col) / 8u];
        } else {
            xraw[i] = x[(X_ROW(tok) + col) / 4u];
            xraw[NX * X_WIDE + i] = x[(X_ROW(tok) + col) / 4u + 1u];
        }
    }
}

void put(uint base, uint c0, uint chunks, uint tokens) {
    uint t = gl_LocalInvocationID.x % CREW;
    [[unroll]] for (uint i = 0u; i < NW; i++) {
        uint e = t + i * CREW, c = c0 + e % KS, at = base + e / KS * PITCH + e % KS * 4u;
        if (BM * KS % CREW != 0u && e >= BM * KS) break;
        uvec4 h[4];
        chunk_halves(weight_row(e / KS) * chunks + c, wraw[i], h);
        bool past = KS * SPLIT > 1u && c >= chunks;  // teams make equal numbers of steps
        [[unroll]] for (uint k = 0u; k < 4u; k++) tile[at + k] = past ? uvec4(0u) : h[k];
    }
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        uint e = t + i * CREW;
        if (BN * PIECES % CREW != 0u && e >= BN * PIECES) break;
        if (RAGGED == 1u && e / PIECES >= tokens) break;
        uvec4 u = xraw[i];
        if (X_WIDE == 1u) {
            vec4 a = uintBitsToFloat(u), b = uintBitsToFloat(xraw[NX * X_WIDE + i]);
            u = uvec4(half_pair(a.x, a.y), half_pair(a.z, a.w), half_pair(b.x, b.y),
                      half_pair(b.z, b.w));
        }
        tile[base + (BM + e / PIECES) * PITCH + e % PIECES] = u;
    }
}

void multiply(uint base, uint wm, uint wn, uint tokens) {
    [[unroll]] for (uint k = 0u; k < KS * 32u / TK; k++) {
        MATRIX_A a[MI];
        [[unroll]] for (uint i = 0u; i < MI; i++)
            coopMatLoad(a[i], tile, base + (wm + i * TM) * PITCH + k * TK / 8u, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0u; j < NJ; j++) {
            if (RAGGED == 1u && wn + j * TN >= tokens) break;
            MATRIX_B b;
            coopMatLoad(b, tile, base + (BM + wn + j * TN) * PITCH + k * TK / 8u, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint i = 0u; i < MI; i++)
                sums[i * NJ + j] = coopMatMulAdd(a[i], b, sums[i * NJ + j]);
        }
    }
}

// The sums of all teams, in the first one
void join(uint team, uint member) {
    uint size = TM * TN / 4u;
    if (team > 0u) {
        [[unroll]] for (uint i = 0u; i < MI * NJ; i++)
            coopMatStore(sums[i], tile, team * SLICE + (member * MI * NJ + i) * size, TN / 4u,
                         gl_CooperativeMatrixLayoutRowMajor);
    }
    barrier();
    if (team > 0u) return;
    for (uint other = 1u; other < SPLIT; other++) {
        [[unroll]] for (uint i = 0u; i < MI * NJ; i++) {
            MATRIX_C before;
            coopMatLoad(before, tile, other * SLICE + (member * MI * NJ + i) * size, TN / 4u,
                        gl_CooperativeMatrixLayoutRowMajor);
            sums[i] = sums[i] + before;
        }
    }
}

#include "matmul_coop_store.glsl"

void main() {
    uint n = TOKENS, tok0 = FIRST_TOKEN + gl_WorkGroupID.x * BN;
    if (step[STEP_STOP] != 0u || tok0 >= n) return;
    uint member = gl_SubgroupID % TEAM, team = gl_SubgroupID / TEAM;
    uint wm = member % (BM / WM) * WM, wn = member / (BM / WM) * WN;
    uint chunks = p.cols / 32u, each = (chunks + KS * SPLIT - 1u) / (KS * SPLIT) * KS;
    uint slice = gl_LocalInvocationID.x / CREW;
    uint first = slice * each, base = slice * SLICE, from = team * SLICE;
    [[unroll]] for (uint i = 0u; i < MI * NJ; i++) sums[i] = MATRIX_C(0.0);
    fetch(first, chunks, tok0, n);
    for (uint c0 = 0u; c0 < each; c0 += KS * STAGES) {
        [[unroll]] for (uint s = 0u; s < STAGES; s++) {
            uint c = c0 + s * KS;
            if (c >= each) break;
            put(base + s * STAGE, first + c, chunks, n - tok0);
            barrier();
            if (c + KS < each) fetch(first + c + KS, chunks, tok0, n);
            multiply(from + s * STAGE, wm, wn, n - tok0);
            // with two stages the next put goes where nobody reads since the last barrier
            if (STAGES == 1u) barrier();
        }
    }
    barrier();
    if (SPLIT > 1u) join(team, member);
    if (team == 0u) store(tok0 + wn, wm, n);
}
