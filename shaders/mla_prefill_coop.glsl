// Body of mla_prefill_coop. A row is a head of a token, so that rows lie one after another in q and
// y, whatever the number of heads; only the mask knows tokens. BT positions at a time lie in shared
// memory, once for all rows, as keys (all values) and as values (the first RANK of them).
//
// Scores: a subgroup makes GROUP tiles of rows times some tiles of positions over one of PARTS
// parts of the columns, whose queries it keeps in registers. Sums: it makes some of the latent's
// dimensions for all rows. In between, LANES invocations share a row's softmax.
//
// spec: 0 workgroup size, 1 subgroup size, 2 RANK, 3 ROT, 4 BM, 5 BT, 6 PARTS, 7 GROUP, 8 AHEAD (1:
// the next positions are loaded while these are multiplied), 9 TM, 10 TN, 11 TK.
// BT is a multiple of TM, TN and TK, RANK of TN and 8, RANK + ROT of TK and 8; a power of two of
// invocations that divides the subgroup shares a row, for at least 2 positions each.
// Shared memory: 16 * (BT * PITCH + PARTS * BM * ROW) + 8 * BM / TM bytes; SUBGROUPS * TM * TN / 4 <=
// BT * PITCH.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 256u;
layout(constant_id = 1) const uint SUBGROUP = 32u;
layout(constant_id = 2) const uint RANK = 512u;
layout(constant_id = 3) const uint ROT = 64u;
layout(constant_id = 4) const uint BM = 32u;
layout(constant_id = 5) const uint BT = 32u;
layout(constant_id = 6) const uint PARTS = 2u;
layout(constant_id = 7) const uint GROUP = 1u;
layout(constant_id = 8) const uint AHEAD = 1u;
layout(constant_id = 9) const uint TM = 16u;
layout(constant_id = 10) const uint TN = 16u;
layout(constant_id = 11) const uint TK = 16u;

#include "matmul_coop_types.glsl"

const float NEVER = -1e30;
const float LOG2_E = 1.44269504;
const uint WIDTH = RANK + ROT;
const uint PIECES = WIDTH / 8u;  // 16-byte vectors of a cache row
const uint PITCH = PIECES | 1u;  // odd, so that rows change banks
const uint SUBGROUPS = WORKGROUP / SUBGROUP;
const uint MT = BM / TM, NT = BT / TN, NK = WIDTH / TK;
const uint BANDS = MT / GROUP;                   // of GROUP tiles of rows
const uint COLS = SUBGROUPS / (BANDS * PARTS);   // subgroups that share a band's positions
const uint OWN = NT / COLS;                      // tiles of positions of a subgroup
const uint KP = (NK + PARTS - 1u) / PARTS;       // steps of a part
const uint DIMS = RANK / TN, ND = (DIMS + SUBGROUPS - 1u) / SUBGROUPS;
const uint LANES = WORKGROUP / BM;               // invocations of a row
const uint SEEN = BT / LANES;                    // positions of an invocation
// A row of scores in f32; then its weights in f16, and its factor in every column of a matrix
const uint FACTORS = BT / 8u, SOFT = FACTORS + TN / 4u;
const uint ROW = (BT / 4u > SOFT ? BT / 4u : SOFT) | 1u;
const uint PART = BM * ROW;
const uint NX = (BT * PIECES + WORKGROUP - 1u) / WORKGROUP;

shared uvec4 kv[BT * PITCH];  // cache rows; before them queries, after them results
shared uvec4 scores[PARTS * PART];
shared uint grown[2u * MT];   // whether factors of a tile of rows are less than 1, in turns

uvec4 raw[NX];
MATRIX_A queries[GROUP * KP];
MATRIX_C outs[MT * ND];
float best, total;  // of the invocation's row

uint part() { return gl_SubgroupID % PARTS; }
uint band() { return gl_SubgroupID / (PARTS * COLS); }
bool inside(uint step_of_part) { return NK % PARTS == 0u || part() * KP + step_of_part < NK; }

// Queries times scale, in units of log 2, BT rows at a time
void load_queries(uint row0, uint rows) {
    for (uint r0 = 0u; r0 < BM; r0 += BT) {
        barrier();
        for (uint e = gl_LocalInvocationID.x; e < BT * PIECES; e += WORKGROUP) {
            uint at = min(row0 + r0 + e / PIECES, rows - 1u) * (WIDTH / 4u) + e % PIECES * 2u;
            vec4 a = q[at] * (p.scale * LOG2_E), b = q[at + 1u] * (p.scale * LOG2_E);
            kv[e / PIECES * PITCH + e % PIECES] = uvec4(
                half_pair(a.x, a.y), half_pair(a.z, a.w), half_pair(b.x, b.y), half_pair(b.z, b.w));
        }
        barrier();
        [[unroll]] for (uint g = 0u; g < GROUP; g++) {
            uint r = (band() * GROUP + g) * TM;
            if (r < r0 || r >= r0 + BT) continue;
            [[unroll]] for (uint i = 0u; i < KP; i++)
                if (inside(i))
                    coopMatLoad(queries[g * KP + i], kv,
                                (r - r0) * PITCH + (part() * KP + i) * TK / 8u, PITCH,
                                gl_CooperativeMatrixLayoutRowMajor);
        }
    }
}

// Cache rows base …, zero from `limit` on
void fetch(uint base, uint limit) {
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        uint e = gl_LocalInvocationID.x + i * WORKGROUP;
        if (BT * PIECES % WORKGROUP != 0u && e >= BT * PIECES) break;
        raw[i] = base + e / PIECES < limit ? k[p.k_base / 4u + base * PIECES + e] : uvec4(0u);
    }
}

void put() {
    [[unroll]] for (uint i = 0u; i < NX; i++) {
        uint e = gl_LocalInvocationID.x + i * WORKGROUP;
        if (BT * PIECES % WORKGROUP != 0u && e >= BT * PIECES) break;
        kv[e / PIECES * PITCH + e % PIECES] = raw[i];
    }
}

void score() {
    uint first = gl_SubgroupID / PARTS % COLS;
    [[unroll]] for (uint j = 0u; j < OWN; j++) {
        uint tile = first + j * COLS;
        MATRIX_C sums[GROUP];
        [[unroll]] for (uint g = 0u; g < GROUP; g++) sums[g] = MATRIX_C(0.0);
        [[unroll]] for (uint i = 0u; i < KP; i++) {
            if (!inside(i)) continue;
            MATRIX_B keys;
            coopMatLoad(keys, kv, tile * TN * PITCH + (part() * KP + i) * TK / 8u, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint g = 0u; g < GROUP; g++)
                sums[g] = coopMatMulAdd(queries[g * KP + i], keys, sums[g]);
        }
        [[unroll]] for (uint g = 0u; g < GROUP; g++)
            coopMatStore(sums[g], scores,
                         part() * PART + (band() * GROUP + g) * TM * ROW + tile * (TN / 4u), ROW,
                         gl_CooperativeMatrixLayoutRowMajor);
    }
}

// The invocation's row with a factor in every column of a matrix
void put_factor(uint row, uint lane, float factor) {
    for (uint i = lane; i < TN / 4u; i += LANES)
        scores[row * ROW + FACTORS + i] = uvec4(floatBitsToUint(factor));
}

// Scores to weights 2^(score - largest so far), in place
void soften(uint base, uint last, uint turn) {
    uint row = gl_LocalInvocationID.x / LANES, lane = gl_LocalInvocationID.x % LANES;
    uint col0 = lane * SEEN;
    float s[SEEN], next = best, sum = 0.0;
    [[unroll]] for (uint c = 0u; c < SEEN; c++) {
        float value = 0.0;
        [[unroll]] for (uint i = 0u; i < PARTS; i++)
            value += uintBitsToFloat(scores[i * PART + row * ROW + (col0 + c) / 4u][(col0 + c) & 3u]);
        s[c] = base + col0 + c <= last ? value : NEVER;
        next = max(next, s[c]);
    }
    [[unroll]] for (uint d = 1u; d < LANES; d *= 2u) next = max(next, subgroupShuffleXor(next, d));
    [[unroll]] for (uint c = 0u; c < SEEN; c++) {
        s[c] = s[c] > 0.5 * NEVER ? exp2(s[c] - next) : 0.0;
        sum += s[c];
    }
    [[unroll]] for (uint d = 1u; d < LANES; d *= 2u) sum += subgroupShuffleXor(sum, d);
    float factor = exp2(best - next);
    total = total * factor + sum;
    best = next;
    if (gl_LocalInvocationID.x < MT) grown[(turn ^ 1u) * MT + gl_LocalInvocationID.x] = 0u;
    if (factor < 1.0 && lane == 0u) atomicOr(grown[turn * MT + row / TM], 1u);
    subgroup_exchange();  // all of the row's scores are read before weights take their place
    [[unroll]] for (uint c = 0u; c < SEEN; c += 2u) {
        uint word = (col0 + c) / 2u;
        scores[row * ROW + word / 4u][word & 3u] = packHalf2x16(vec2(s[c], s[c + 1u]));
    }
    put_factor(row, lane, factor);
}

void multiply_outs(uint m) {
    MATRIX_C shrunk;
    coopMatLoad(shrunk, scores, m * TM * ROW + FACTORS, ROW, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0u; j < ND; j++) {
        uint o = m * ND + j;
        outs[o] = outs[o] * shrunk;
    }
}

void add_values(uint turn) {
    [[unroll]] for (uint m = 0u; m < MT; m++)
        if (grown[turn * MT + m] != 0u) multiply_outs(m);
    [[unroll]] for (uint i = 0u; i < BT / TK; i++) {
        MATRIX_A weights[MT];
        [[unroll]] for (uint m = 0u; m < MT; m++)
            coopMatLoad(weights[m], scores, m * TM * ROW + i * TK / 8u, ROW,
                        gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0u; j < ND; j++) {
            uint d = gl_SubgroupID * ND + j;
            if (DIMS % SUBGROUPS != 0u && d >= DIMS) break;
            MATRIX_B values;
            coopMatLoad(values, kv, i * TK * PITCH + d * (TN / 8u), PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint m = 0u; m < MT; m++)
                outs[m * ND + j] = coopMatMulAdd(weights[m], values, outs[m * ND + j]);
        }
    }
}

// A matrix of results that is not whole, through shared memory
void store_edge(uint o, uint at, uint count) {
    uint mine = gl_SubgroupID * (TM * TN / 4u);
    coopMatStore(outs[o], kv, mine, TN / 4u, gl_CooperativeMatrixLayoutRowMajor);
    subgroup_exchange();
    for (uint e = gl_SubgroupInvocationID; e < TM * TN / 4u; e += SUBGROUP) {
        uint row = e / (TN / 4u), to = at + row * RANK + e % (TN / 4u) * 4u;
        vec4 u = uintBitsToFloat(kv[mine + e]);
        if (row >= count) continue;
#ifdef HALF
        y[to / 2u] = half_pair(u.x, u.y);
        y[to / 2u + 1u] = half_pair(u.z, u.w);
#else
        for (uint i = 0u; i < 4u; i++) y[to + i] = u[i];
#endif
    }
    subgroup_exchange();
}

void store(uint row0, uint rows) {
    [[unroll]] for (uint m = 0u; m < MT; m++) {
        [[unroll]] for (uint j = 0u; j < ND; j++) {
            uint o = m * ND + j, d = gl_SubgroupID * ND + j, row = row0 + m * TM;
            if (row >= rows || d >= DIMS) continue;
            uint at = row * RANK + d * TN;
            if (row + TM > rows) {
                store_edge(o, at, rows - row);
                continue;
            }
#ifdef HALF
            MATRIX_HALF halves = MATRIX_HALF(outs[o]);
            coopMatStore(halves, y, at / 2u, RANK / 2u, gl_CooperativeMatrixLayoutRowMajor);
#else
            coopMatStore(outs[o], y, at, RANK, gl_CooperativeMatrixLayoutRowMajor);
#endif
        }
    }
}

void main() {
    uint rows = step[STEP_N] * p.heads, pos = step[STEP_POS];
    // the last tokens see most positions: they come first
    uint row0 = (gl_NumWorkGroups.x - 1u - gl_WorkGroupID.x) * BM;
    if (step[STEP_STOP] != 0u || row0 >= rows) return;
    uint own = min(row0 + gl_LocalInvocationID.x / LANES, rows - 1u);
    uint last = pos + own / p.heads, limit = pos + min(row0 + BM - 1u, rows - 1u) / p.heads + 1u;
    best = NEVER;
    total = 0.0;
    [[unroll]] for (uint o = 0u; o < MT * ND; o++) outs[o] = MATRIX_C(0.0);
    if (gl_LocalInvocationID.x < 2u * MT) grown[gl_LocalInvocationID.x] = 0u;
    load_queries(row0, rows);
    if (AHEAD == 1u) fetch(0u, limit);
    for (uint base = 0u, turn = 0u; base < limit; base += BT, turn ^= 1u) {
        if (AHEAD == 0u) fetch(base, limit);
        barrier();
        put();
        barrier();
        if (AHEAD == 1u && base + BT < limit) fetch(base + BT, limit);
        score();
        barrier();
        soften(base, last, turn);
        barrier();
        add_values(turn);
    }
    barrier();
    put_factor(gl_LocalInvocationID.x / LANES, gl_LocalInvocationID.x % LANES, 1.0 / total);
    barrier();
    [[unroll]] for (uint m = 0u; m < MT; m++) multiply_outs(m);
    store(row0, rows);
}
