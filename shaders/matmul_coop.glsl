// Body of the cooperative matrix products: a workgroup makes BM weight rows times BN tokens, each
// subgroup WM x WN of them. A step is KS weight chunks of every row, decoded to f16 in shared
// memory; the words of the next steps are on their way meanwhile, and so are the activations, f16
// or f32 in memory. SPLIT teams of subgroups share the columns of one tile, where tiles are few.
//
// spec: 0 workgroup size = subgroup size * TEAM * SPLIT, 1 BM, 2 BN, 3 WM, 4 WN, 5 KS, 6 STAGES,
// 7 SPLIT, 8 ORDER, 9 TM, 10 TN, 11 TK, 12 X_WIDE (1: x is f32).
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
layout(constant_id = 8) const uint ORDER = 0u;  // with two stages; see work()
layout(constant_id = 9) const uint TM = 16u;
layout(constant_id = 10) const uint TN = 16u;
layout(constant_id = 11) const uint TK = 16u;
layout(constant_id = 12) const uint X_WIDE = 0u;

#include "matmul_coop_types.glsl"

const uint PITCH = KS * 4u + 1u;  // 16-byte vectors per row; odd, so that rows change banks
const uint STAGE = (BM + BN) * PITCH;
const uint SLICE = STAGES * STAGE;                 // shared memory of a team
const uint TEAM = BM / WM * (BN / WN);             // subgroups of a team
const uint CREW = WORKGROUP / SPLIT;               // invocations of a team
const uint PARTS = BM * KS < CREW ? 2u : 1u;       // invocations that share a chunk
const uint LANE = PARTS * KS;                      // invocations per row of weights and round
const uint WSTEP = CREW / LANE, NW = (BM + WSTEP - 1u) / WSTEP;     // rows per round, rounds
const uint PIECES = KS * 4u;                       // 8 values of a token each
const uint XSTEP = CREW / PIECES, NX = (BN + XSTEP - 1u) / XSTEP;
const uint MI = WM / TM, NJ = WN / TN;
shared uvec4 tile[SPLIT * SLICE];

#include "matmul_coop_blocks.glsl"

Chunk wraw[NW];
uvec4 xraw[NX * (1u + X_WIDE)];
uvec4 whalf[NW * 4u / PARTS];
uint wrow[NW], xrow[NX];  // first chunk of the row, first vector of the token
MATRIX_C sums[MI * NJ];

uint chunks() { return p.cols / 32u; }
uint lane() { return SPLIT == 1u ? gl_LocalInvocationID.x : gl_LocalInvocationID.x % CREW; }

// Row of the weights for row r of the tile; the gated form has WM / 2 gates, then their partners
uint weight_row(uint r) {
#ifdef GATED
    uint row = gl_WorkGroupID.y * (BM / 2u) + r / WM * (WM / 2u) + r % (WM / 2u);
    return min(row, p.rows - 1u) + (r % WM >= WM / 2u ? p.rows : 0u);
#else
    return min(gl_WorkGroupID.y * BM + r, p.rows - 1u);
#endif
}

void find_rows(uint tok0, uint n) {
    [[unroll]] for (uint i = 0u; i < NW; i++)
        wrow[i] = weight_row(min(lane() / LANE + i * WSTEP, BM - 1u)) * chunks();
    [[unroll]] for (uint i = 0u; i < NX; i++)
        xrow[i] = min(tok0 + lane() / PIECES + i * XSTEP, n - 1u) * p.x_stride / 4u >> (1u - X_WIDE);
}

// The words of step c0 on their way; past the end of the rows, those of the last chunk
void fetch(uint c0) {
    uint c = min(c0 + lane() / PARTS % KS, chunks() - 1u), q = lane() % PIECES;
    [[unroll]] for (uint i = 0u; i < NW; i++) wraw[i] = part_fetch(wrow[i] + c, lane() % PARTS);
    // chunks of a step follow each other by 32 columns, or by 16 where groups lie apart
    uint next = chunk_b(0u) == 16u ? 32u : 16u;
    uint col = chunk_a(c0) + q / 4u * next + ((q & 2u) == 0u ? 0u : chunk_b(0u)) + (q & 1u) * 8u;
    uint at = min(col, p.cols - 8u) / 4u >> (1u - X_WIDE);
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        xraw[i] = x[xrow[i] + at];
        if (X_WIDE == 1u) xraw[NX * X_WIDE + i] = x[xrow[i] + at + 1u];
    }
}

void decode(uint c0) {
    uint c = c0 + lane() / PARTS % KS;
    bool past = KS * SPLIT * STAGES > 1u && c >= chunks();
    [[unroll]] for (uint i = 0u; i < NW; i++) {
        [[unroll]] for (uint b = 0u; b < 2u / PARTS; b++) {
            uvec4 h[2];
            group_halves(wrow[i] + c, wraw[i], PARTS == 1u ? b : lane() % PARTS, past, h);
            whalf[(i * (2u / PARTS) + b) * 2u] = h[0];
            whalf[(i * (2u / PARTS) + b) * 2u + 1u] = h[1];
        }
    }
}

uvec4 piece(uint i) {
    if (X_WIDE == 0u) return xraw[i];
    vec4 a = uintBitsToFloat(xraw[i]), b = uintBitsToFloat(xraw[NX * X_WIDE + i]);
    return uvec4(half_pair(a.x, a.y), half_pair(a.z, a.w), half_pair(b.x, b.y),
                 half_pair(b.z, b.w));
}

// Decoded weights, and activations as fetched, into a stage that starts at `base`
void write(uint base) {
    uint wat = base + lane() / LANE * PITCH + lane() / PARTS % KS * 4u + lane() % PARTS * 2u;
    uint xat = base + (BM + lane() / PIECES) * PITCH + lane() % PIECES;
    [[unroll]] for (uint i = 0u; i < NW; i++) {
        if (BM % WSTEP != 0u && lane() / LANE + i * WSTEP >= BM) break;
        [[unroll]] for (uint k = 0u; k < 4u / PARTS; k++)
            tile[wat + i * WSTEP * PITCH + k] = whalf[i * (4u / PARTS) + k];
    }
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        if (BN % XSTEP != 0u && lane() / PIECES + i * XSTEP >= BN) break;
        tile[xat + i * XSTEP * PITCH] = piece(i);
    }
}

// From fetched words to a stage, and the next words on their way
void prepare(uint base, uint c0) {
    decode(c0);
    write(base);
    fetch(c0 + KS);
}

void multiply(uint base, uint wm, uint wn) {
    [[unroll]] for (uint k = 0u; k < KS * 32u / TK; k++) {
        MATRIX_A a[MI];
        [[unroll]] for (uint i = 0u; i < MI; i++)
            coopMatLoad(a[i], tile, base + (wm + i * TM) * PITCH + k * TK / 8u, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0u; j < NJ; j++) {
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

// All `each` chunks of a team. `mine` is the team of the invocation, by which it loads; `from` the
// shared memory that its subgroup multiplies.
void work(uint mine, uint from, uint each, uint wm, uint wn) {
    uint first = mine * each, to = mine * SLICE;
    fetch(first);
    prepare(to, first);
    barrier();
    if (STAGES == 1u) {
        for (uint c = first; c < first + each; c += KS) {
            multiply(from, wm, wn);
            barrier();
            prepare(to, c + KS);
            barrier();
        }
        return;
    }
    // Two stages: while one is multiplied the other is filled. ORDER 0: multiply, then prepare;
    // 1: decode beside the products; 2: half of the subgroups prepare first, half multiply first.
    bool early = ORDER == 2u && (gl_SubgroupID / 4u) % 2u == 0u;
    for (uint c0 = first; c0 < first + each; c0 += 2u * KS) {
        [[unroll]] for (uint s = 0u; s < 2u; s++) {
            uint c = c0 + s * KS, other = to + (1u - s) * STAGE;
            if (ORDER == 1u) {
                decode(c + KS);
                multiply(from + s * STAGE, wm, wn);
                write(other);
                fetch(c + 2u * KS);
            } else {
                if (early) prepare(other, c + KS);
                multiply(from + s * STAGE, wm, wn);
                if (!early) prepare(other, c + KS);
            }
            barrier();
        }
    }
}

void main() {
    uint n = step[STEP_N], tok0 = gl_WorkGroupID.x * BN;
    if (step[STEP_STOP] != 0u || tok0 >= n) return;
    uint member = gl_SubgroupID % TEAM, team = gl_SubgroupID / TEAM;
    uint wm = member % (BM / WM) * WM, wn = member / (BM / WM) * WN;
    // equal numbers of steps for all teams; chunks past the end of the rows are zeros
    uint whole = KS * STAGES, each = (chunks() + whole * SPLIT - 1u) / (whole * SPLIT) * whole;
    uint mine = SPLIT == 1u ? 0u : gl_LocalInvocationID.x / CREW;
    [[unroll]] for (uint i = 0u; i < MI * NJ; i++) sums[i] = MATRIX_C(0.0);
    find_rows(tok0, n);
    work(mine, SPLIT == 1u ? 0u : team * SLICE, each, wm, wn);
    if (SPLIT > 1u) join(team, member);
    if (team == 0u) store(tok0 + wn, wm, n);
}
