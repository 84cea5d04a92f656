// Body of attention_prefill_coop.
//
// spec: 0 workgroup size, 1 subgroup size, 2 HEAD_DIM, 3 BT, 4 TM, 5 TN, 6 TK. HEAD_DIM is a
// multiple of TN, TK and 16; SUBGROUPS * TM <= 2 * BT. Shared memory: 16 bytes times
// 2 * BT * (HEAD_DIM / 8 + 1) + SUBGROUPS * OWN.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;
layout(constant_id = 1) const uint SUBGROUP = 32u;
layout(constant_id = 2) const uint HEAD_DIM = 64u;
layout(constant_id = 3) const uint BT = 32u;
layout(constant_id = 4) const uint TM = 16u;
layout(constant_id = 5) const uint TN = 16u;
layout(constant_id = 6) const uint TK = 16u;
#ifdef ANY
layout(constant_id = 7) const uint K_TYPE = 0u;
layout(constant_id = 8) const uint V_TYPE = 0u;
#endif
layout(constant_id = 9) const uint RING = 0u;  // rows of the caches (cache.glsl)

#include "matmul_coop_types.glsl"
#include "softcap.glsl"
#include "cache_read.glsl"

const float NEVER = -1e30;
const float LOG2_E = 1.44269504;
const uint SUBGROUPS = WORKGROUP / SUBGROUP;
const uint BQ = SUBGROUPS * TM;
const uint PIECES = HEAD_DIM / 8u;         // 16-byte vectors of a row of f16
const uint PITCH = PIECES + 1u;            // odd, so that rows change banks
const uint SCORE_PITCH = BT / 4u + 1u;     // f32 scores
const uint WEIGHT_PITCH = BT / 8u + 1u;    // f16 weights, in place of the scores
const uint FACTORS = TM * WEIGHT_PITCH;    // then a matrix with one factor per row
const uint NEED_A = TM * SCORE_PITCH, NEED_B = FACTORS + TM * TN / 4u;
const uint OWN = NEED_A > NEED_B ? NEED_A : NEED_B;
const uint LANES = SUBGROUP > TM ? SUBGROUP / TM : 1u;  // lanes that share a query row
const uint ROWS = SUBGROUP > TM ? 1u : TM / SUBGROUP;   // query rows of a lane
const uint COLS = BT / LANES;                           // positions of a lane
const uint NK = HEAD_DIM / TK, ND = HEAD_DIM / TN, NT = BT / TN;

shared uvec4 kv[2u * BT * PITCH];  // keys, then values; first of all the queries
shared uvec4 own[SUBGROUPS * OWN];

MATRIX_A queries[NK];
MATRIX_C outs[ND];
float best[ROWS], total[ROWS], factors[ROWS];

uint lane_row(uint i) { return gl_SubgroupInvocationID / LANES + i * (SUBGROUP / LANES); }

// Queries times scale, in units of log 2, into kv[]
void load_queries(uint q0, uint n, uint head) {
    uint stride = (p.n_head + 2u * p.n_head_kv) * HEAD_DIM / 4u;
    for (uint e = gl_LocalInvocationID.x; e < BQ * PIECES; e += WORKGROUP) {
        uint at = min(q0 + e / PIECES, n - 1u) * stride + head * HEAD_DIM / 4u + e % PIECES * 2u;
        vec4 a = qkv[at] * (p.scale * LOG2_E), b = qkv[at + 1u] * (p.scale * LOG2_E);
        kv[e / PIECES * PITCH + e % PIECES] = uvec4(
            half_pair(a.x, a.y), half_pair(a.z, a.w), half_pair(b.x, b.y), half_pair(b.z, b.w));
    }
    barrier();
    [[unroll]] for (uint i = 0u; i < NK; i++)
        coopMatLoad(queries[i], kv, gl_SubgroupID * TM * PITCH + i * TK / 8u, PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
}

// Eight values of a row for the matrices
#ifdef F16
uvec4 key_halves(uint row, uint column) { return key(row, column); }
uvec4 val_halves(uint row, uint column) { return val(row, column); }
#else
uvec4 halves(Eight e, float scale) {
    vec4 a = e.lo * scale, b = e.hi * scale;
    return uvec4(half_pair(a.x, a.y), half_pair(a.z, a.w), half_pair(b.x, b.y), half_pair(b.z, b.w));
}
uvec4 key_halves(uint row, uint column) {
    Raw u = key(row, column);
    return halves(unpack_key(u), u.scale);
}
uvec4 val_halves(uint row, uint column) {
    Raw u = val(row, column);
    return halves(unpack_val(u), u.scale);
}
#endif

// Keys and values of positions base …; those from `limit` on are zero
void load_tile(uint base, uint limit, uint kv_head) {
    [[unroll]] for (uint e0 = 0u; e0 < BT * PIECES; e0 += WORKGROUP) {
        uint e = e0 + gl_LocalInvocationID.x, j = e / PIECES;
        if (BT * PIECES % WORKGROUP != 0u && e >= BT * PIECES) break;
        uint row = key_row(base + j), column = (kv_head * PIECES + e % PIECES) * 8u;
        bool there = base + j < limit;
        kv[j * PITCH + e % PIECES] = there ? key_halves(row, column) : uvec4(0u);
        kv[(BT + j) * PITCH + e % PIECES] = there ? val_halves(row, column) : uvec4(0u);
    }
}

// Scores of TM queries and BT positions, into own[]
void score(uint mine) {
    [[unroll]] for (uint j = 0u; j < NT; j++) {
        MATRIX_C sums = MATRIX_C(0.0);
        [[unroll]] for (uint i = 0u; i < NK; i++) {
            MATRIX_B keys;
            coopMatLoad(keys, kv, j * TN * PITCH + i * TK / 8u, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            sums = coopMatMulAdd(queries[i], keys, sums);
        }
        coopMatStore(sums, own, mine + j * TN / 4u, SCORE_PITCH,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroup_exchange();
}

// A factor per row, in every column of the matrix after the weights
void put_factor(uint mine, uint row, float factor) {
    uint part = gl_SubgroupInvocationID % LANES;
    [[unroll]] for (uint i = 0u; i < TN / 4u / LANES; i++)
        own[mine + FACTORS + row * (TN / 4u) + part * (TN / 4u / LANES) + i] =
            uvec4(floatBitsToUint(factor));
}

void multiply_outs(uint mine) {
    MATRIX_C shrunk;
    coopMatLoad(shrunk, own, mine + FACTORS, TN / 4u, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint i = 0u; i < ND; i++) outs[i] = outs[i] * shrunk;
}

// Scores to weights 2^(score - largest so far); returns whether a row's largest has grown
bool soften(uint mine, uint base, uint first_own) {
    uint col0 = gl_SubgroupInvocationID % LANES * COLS;
    float s[ROWS][COLS];
    float least = 1.0;
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        uint row = lane_row(r), position = first_own + row;
        float next = best[r];
        [[unroll]] for (uint c = 0u; c < COLS; c++) {
            float raw = uintBitsToFloat(own[mine + row * SCORE_PITCH + (col0 + c) / 4u][c & 3u]);
            if (p.softcap > 0.0) raw = capped(raw, p.softcap * LOG2_E);
            uint at = base + col0 + c;
            bool seen = at <= position && (p.window == 0u || at + p.window > position);
            s[r][c] = seen ? raw : NEVER;
            next = max(next, s[r][c]);
        }
        [[unroll]] for (uint d = 1u; d < LANES; d *= 2u) next = max(next, subgroupShuffleXor(next, d));
        float sum = 0.0;
        [[unroll]] for (uint c = 0u; c < COLS; c++) {
            s[r][c] = s[r][c] > 0.5 * NEVER ? exp2(s[r][c] - next) : 0.0;
            sum += s[r][c];
        }
        [[unroll]] for (uint d = 1u; d < LANES; d *= 2u) sum += subgroupShuffleXor(sum, d);
        factors[r] = exp2(best[r] - next);
        total[r] = total[r] * factors[r] + sum;
        best[r] = next;
        least = min(least, factors[r]);
    }
    subgroup_exchange();  // all scores are read before the weights take their place
    least = subgroupMin(least);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        uint at = mine + lane_row(r) * WEIGHT_PITCH + col0 / 8u;
        [[unroll]] for (uint c = 0u; c < COLS; c += 8u)
            own[at + c / 8u] = uvec4(
                packHalf2x16(vec2(s[r][c], s[r][c + 1u])),
                packHalf2x16(vec2(s[r][c + 2u], s[r][c + 3u])),
                packHalf2x16(vec2(s[r][c + 4u], s[r][c + 5u])),
                packHalf2x16(vec2(s[r][c + 6u], s[r][c + 7u])));
    }
    return least < 1.0;
}

void add_values(uint mine) {
    [[unroll]] for (uint i = 0u; i < BT / TK; i++) {
        MATRIX_A weights;
        coopMatLoad(weights, own, mine + i * TK / 8u, WEIGHT_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint d = 0u; d < ND; d++) {
            MATRIX_B values;
            coopMatLoad(values, kv, (BT + i * TK) * PITCH + d * TN / 8u, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            outs[d] = coopMatMulAdd(weights, values, outs[d]);
        }
    }
}

void store_outs(uint mine, uint row0, uint n, uint head) {
    uint stride = p.n_head * HEAD_DIM;
    [[unroll]] for (uint d = 0u; d < ND; d++) {
        uint at = row0 * stride + head * HEAD_DIM + d * TN;
        if (row0 + TM <= n) {
#ifdef HALF
            MATRIX_HALF halves = MATRIX_HALF(outs[d]);
            coopMatStore(halves, y, at / 2u, stride / 2u, gl_CooperativeMatrixLayoutRowMajor);
#else
            coopMatStore(outs[d], y, at, stride, gl_CooperativeMatrixLayoutRowMajor);
#endif
            continue;
        }
        coopMatStore(outs[d], own, mine, TN / 4u, gl_CooperativeMatrixLayoutRowMajor);
        subgroup_exchange();
        for (uint e = gl_SubgroupInvocationID; e < TM * TN / 4u; e += SUBGROUP) {
            uint row = e / (TN / 4u), to = at + row * stride + e % (TN / 4u) * 4u;
            vec4 u = uintBitsToFloat(own[mine + e]);
            if (row0 + row >= n) continue;
#ifdef HALF
            y[to / 2u] = half_pair(u.x, u.y);
            y[to / 2u + 1u] = half_pair(u.z, u.w);
#else
            for (uint i = 0u; i < 4u; i++) y[to + i] = u[i];
#endif
        }
        subgroup_exchange();
    }
}

void main() {
    uint n = step[STEP_N], pos = step[STEP_POS], head = gl_WorkGroupID.y;
    uint q0 = gl_WorkGroupID.x * BQ;
    if (step[STEP_STOP] != 0u || q0 >= n) return;
    uint mine = gl_SubgroupID * OWN, row0 = q0 + gl_SubgroupID * TM;
    load_queries(q0, n, head);
    [[unroll]] for (uint d = 0u; d < ND; d++) outs[d] = MATRIX_C(0.0);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) { best[r] = NEVER; total[r] = 0.0; }
    uint limit = pos + min(q0 + BQ, n);  // one past the last position that any row sees
    uint first = p.window != 0u && pos + q0 + 1u > p.window ? pos + q0 + 1u - p.window : 0u;
    for (uint base = first; base < limit; base += BT) {
        barrier();
        load_tile(base, limit, head / (p.n_head / p.n_head_kv));
        barrier();
        if (base >= pos + row0 + TM) continue;  // later than all of this subgroup's queries
        score(mine);
        bool grown = soften(mine, base, pos + row0);
        if (grown) {
            [[unroll]] for (uint r = 0u; r < ROWS; r++) put_factor(mine, lane_row(r), factors[r]);
        }
        subgroup_exchange();
        if (grown) multiply_outs(mine);
        add_values(mine);
        subgroup_exchange();  // the next scores overwrite the weights
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++) put_factor(mine, lane_row(r), 1.0 / total[r]);
    subgroup_exchange();
    multiply_outs(mine);
    subgroup_exchange();
    store_outs(mine, row0, n, head);
}
