// Body of mla_attention_coop. Scores of TM heads and TN positions are shared by KPARTS subgroups,
// each with a part of the row; a subgroup keeps its part of the queries and, of the sums, its
// columns of the latent for all heads. The next tile is on its way while one is computed.
//
// spec: 0 workgroup, 1 subgroup size, 2 RANK, 3 ROT, 4 TM, 5 TN, 7 TK, 8 BT (positions of a tile),
// 9 HT (TM heads each); HT * BT / TN subgroups or a multiple. Shared memory: 16 bytes times
// ROWS * PITCH + SCORES, as mla_attention_coop.py counts it.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;
layout(constant_id = 1) const uint SUBGROUP = 32u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint ROT = 32u;
layout(constant_id = 4) const uint TM = 16u;
layout(constant_id = 5) const uint TN = 16u;
layout(constant_id = 7) const uint TK = 16u;
layout(constant_id = 8) const uint BT = 32u;
layout(constant_id = 9) const uint HT = 1u;

#include "matmul_coop_types.glsl"

const float NEVER = -1e30;
const uint SUBGROUPS = WORKGROUP / SUBGROUP, HEADS = HT * TM, NT = BT / TN;
const uint WIDTH = RANK + ROT, PIECES = WIDTH / 8u;  // 16-byte vectors of a row
const uint PITCH = PIECES + 1u;                      // odd, so that rows change banks
const uint ROWS = BT > HEADS ? BT : HEADS;
const uint KPARTS = SUBGROUPS / (HT * NT), NK = WIDTH / TK, NKP = (NK + KPARTS - 1u) / KPARTS;
const uint ND = RANK / TN, NDP = (ND + SUBGROUPS - 1u) / SUBGROUPS;
const uint SCORE_PITCH = BT / 4u + 1u, WEIGHT_PITCH = BT / 8u + 1u;
const uint FACTORS = HEADS * WEIGHT_PITCH;           // a factor per head, in all columns
const uint NEED_A = KPARTS * HEADS * SCORE_PITCH, NEED_B = FACTORS + HEADS * TN / 4u;
const uint SCORES = NEED_A > NEED_B ? NEED_A : NEED_B;
const uint LANES = WORKGROUP / HEADS;                // that share a head in the softmax
const uint OWN = BT / LANES / 4u;                    // vectors of four scores of a lane
const uint LOADS = (BT * PIECES + WORKGROUP - 1u) / WORKGROUP;
const uint QUERIES = (HEADS * PIECES + WORKGROUP - 1u) / WORKGROUP;
const uint OUT_PITCH = RANK / 4u + 1u;               // f32 sums of TM heads, in place of the rows

shared uvec4 kv[ROWS * PITCH > TM * OUT_PITCH ? ROWS * PITCH : TM * OUT_PITCH];
shared uvec4 own[SCORES];

// Rounded, then what that left: 22 bits in all, since a softmax multiplies errors. No two names in
// a declaration: glslang takes the second for another type of matrix.
MATRIX_A queries[2u * NKP];
MATRIX_C outs[HT * NDP];
uvec4 ahead[LOADS];

void load_ahead(uint base, uint limit, uint t) {
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        uint e = min(t + i * WORKGROUP, BT * PIECES - 1u), row = base + e / PIECES;
        uvec4 u = k[p.k_base / 4u + min(row, limit - 1u) * PIECES + e % PIECES];
        ahead[i] = row < limit ? u : uvec4(0u);
    }
}

void store_ahead(uint t) {
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        uint e = t + i * WORKGROUP;
        if (BT * PIECES % WORKGROUP == 0u || e < BT * PIECES)
            kv[e / PIECES * PITCH + e % PIECES] = ahead[i];
    }
}

void put_query(uvec4 u, uint e) {
    if (HEADS * PIECES % WORKGROUP == 0u || e < HEADS * PIECES)
        kv[e / PIECES * PITCH + e % PIECES] = u;
}

// All queries into shared memory, rounded to float16; `rest` becomes what that left. All loads are
// on their way at once.
void store_queries(uint first, uint t, out uvec4 rest[QUERIES]) {
    vec2 x[QUERIES * 4u];
    [[unroll]] for (uint i = 0u; i < QUERIES; i++) {
        uint e = min(t + i * WORKGROUP, HEADS * PIECES - 1u);
        uint at = (min(first + e / PIECES, p.heads - 1u) * WIDTH + e % PIECES * 8u) / 2u;
        [[unroll]] for (uint j = 0u; j < 4u; j++) x[i * 4u + j] = q[at + j];
    }
    [[unroll]] for (uint i = 0u; i < QUERIES; i++) {
        uvec4 u;
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            vec2 own = x[i * 4u + j] * p.scale;
            u[j] = half_pair(own.x, own.y);
            own -= unpackHalf2x16(u[j]);
            rest[i][j] = half_pair(own.x, own.y);
        }
        put_query(u, t + i * WORKGROUP);
    }
    barrier();
}

// This subgroup's part of them
#define LOAD_QUERIES(to) \
    [[unroll]] for (uint i = 0u; i < NKP; i++) \
        if (NK % KPARTS == 0u || kp * NKP + i < NK) \
            coopMatLoad(queries[to + i], kv, ht * TM * PITCH + (kp * NKP + i) * TK / 8u, PITCH, \
                        gl_CooperativeMatrixLayoutRowMajor); \
    barrier();

// Scores of this subgroup's heads and positions over its part of the rows
void score(uint ht, uint nt, uint kp) {
    MATRIX_C sums = MATRIX_C(0.0);
    MATRIX_C small = MATRIX_C(0.0);  // of its own, so that products wait half as often for sums
    [[unroll]] for (uint i = 0u; i < NKP; i++)
        if (NK % KPARTS == 0u || kp * NKP + i < NK) {
            MATRIX_B keys;
            coopMatLoad(keys, kv, nt * TN * PITCH + (kp * NKP + i) * TK / 8u, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            small = coopMatMulAdd(queries[NKP + i], keys, small);
            sums = coopMatMulAdd(queries[i], keys, sums);
        }
    sums = sums + small;
    coopMatStore(sums, own, (kp * HEADS + ht * TM) * SCORE_PITCH + nt * TN / 4u, SCORE_PITCH,
                 gl_CooperativeMatrixLayoutRowMajor);
}

// A factor for the head, in this lane's part of the columns
void put_factor(uint t, float factor) {
    uint head = t / LANES;
    for (uint i = t % LANES; i < TN / 4u; i += LANES)
        own[FACTORS + head * (TN / 4u) + i] = uvec4(floatBitsToUint(factor));
}

// Scores to weights; all invocations of a head hold its largest score and its sum
void soften(uint count, uint t, inout float best, inout float total) {
    uint head = t / LANES, first = t % LANES * OWN;
    vec4 s[OWN];
    float next = best, sum = 0.0;
    [[unroll]] for (uint i = 0u; i < OWN; i++) {
        s[i] = vec4(0.0);
        [[unroll]] for (uint j = 0u; j < KPARTS; j++)
            s[i] += uintBitsToFloat(own[(j * HEADS + head) * SCORE_PITCH + first + i]);
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            if (4u * (first + i) + j >= count) s[i][j] = NEVER;
            next = max(next, s[i][j]);
        }
    }
    [[unroll]] for (uint d = 1u; d < LANES; d *= 2u) next = max(next, subgroupShuffleXor(next, d));
    [[unroll]] for (uint i = 0u; i < OWN; i++) {
        s[i] = exp(s[i] - next);
        sum += s[i].x + s[i].y + s[i].z + s[i].w;
    }
    [[unroll]] for (uint d = 1u; d < LANES; d *= 2u) sum += subgroupShuffleXor(sum, d);
    float factor = exp(best - next);
    total = total * factor + sum;
    best = next;
    barrier();  // all scores are read before the weights take their place
    [[unroll]] for (uint i = 0u; i < OWN; i++) {
        uint at = head * WEIGHT_PITCH + (first + i) / 2u, j = (first + i) % 2u * 2u;
        own[at][j] = packHalf2x16(s[i].xy);
        own[at][j + 1u] = packHalf2x16(s[i].zw);
    }
    put_factor(t, factor);
}

void gather(bool begun) {
    [[unroll]] for (uint h = 0u; h < HT; h++) {
        if (begun) {
            MATRIX_C shrunk;
            coopMatLoad(shrunk, own, FACTORS + h * TM * TN / 4u, TN / 4u,
                        gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint d = h * NDP; d < (h + 1u) * NDP; d++) outs[d] = outs[d] * shrunk;
        }
        [[unroll]] for (uint i = 0u; i < BT / TK; i++) {
            MATRIX_A weights;
            coopMatLoad(weights, own, h * TM * WEIGHT_PITCH + i * TK / 8u, WEIGHT_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint d = 0u; d < NDP; d++) {
                uint column = d * SUBGROUPS + gl_SubgroupID;
                if (ND % SUBGROUPS == 0u || column < ND) {
                    MATRIX_B values;
                    coopMatLoad(values, kv, i * TK * PITCH + column * TN / 8u, PITCH,
                                gl_CooperativeMatrixLayoutRowMajor);
                    outs[h * NDP + d] = coopMatMulAdd(weights, values, outs[h * NDP + d]);
                }
            }
        }
    }
}

// Rows of `part`: padding heads have none
void store_outs(uint first, uint split, uint t) {
    [[unroll]] for (uint h = 0u; h < HT; h++) {
        barrier();
        [[unroll]] for (uint d = 0u; d < NDP; d++) {
            uint column = d * SUBGROUPS + gl_SubgroupID;
            if (ND % SUBGROUPS == 0u || column < ND)
                coopMatStore(outs[h * NDP + d], kv, column * TN / 4u, OUT_PITCH,
                             gl_CooperativeMatrixLayoutRowMajor);
        }
        barrier();
        for (uint e = t; e < TM * RANK / 2u; e += WORKGROUP) {
            uint row = e / (RANK / 2u), head = first + h * TM + row, i = e % (RANK / 2u);
            uvec4 u = kv[row * OUT_PITCH + i / 2u];
            if (head < p.heads)
                part[(head * p.splits + split) * (RANK / 2u + 1u) + i] =
                    uintBitsToFloat((i & 1u) == 0u ? u.xy : u.zw);
        }
    }
}

void main() {
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID, split = gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u) return;
    uint len = length_seen(), per = split_length(len), first = gl_WorkGroupID.y * HEADS;
    if (split * per >= len) return;
    uint start = split * per, limit = min(start + per, len);
    uint ht = gl_SubgroupID % HT, nt = gl_SubgroupID / HT % NT, kp = gl_SubgroupID / (HT * NT);
    float best = NEVER, total = 0.0;
    load_ahead(start, limit, t);
    uvec4 rest[QUERIES];
    store_queries(first, t, rest);
    LOAD_QUERIES(0u)
    [[unroll]] for (uint i = 0u; i < QUERIES; i++) put_query(rest[i], t + i * WORKGROUP);
    barrier();
    LOAD_QUERIES(NKP)
    [[unroll]] for (uint i = 0u; i < HT * NDP; i++) outs[i] = MATRIX_C(0.0);
    for (uint base = start; base < limit; base += BT) {
        store_ahead(t);
        barrier();
        if (base + BT < limit) load_ahead(base + BT, limit, t);
        score(ht, nt, kp);
        barrier();
        soften(limit - base, t, best, total);
        barrier();
        gather(base != start);
        barrier();
    }
    store_outs(first, split, t);
    uint head = first + t / LANES;
    if (head < p.heads && t % LANES == 0u)
        part[(head * p.splits + split) * (RANK / 2u + 1u) + RANK / 2u] = vec2(best, total);
}
