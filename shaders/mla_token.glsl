// What a head does for one token of latent attention, in one workgroup: plain query (QUERY: from the
// compressed one), absorbed query, scores and softmax over the latent cache, weighted latent in int8,
// the head's values in int8. Short contexts: a workgroup sees all positions.
//
// Subgroups share the positions; a lane has its part of query and sums in registers and reads each
// cache row once, for both. Every stage loads its first weights or rows before the barrier that it
// waits at. The last subgroup makes the token's own cache row, which the first workgroup stores;
// the others have it in shared memory.
//
// spec: 0 workgroup, 1 subgroup size (at least 4), 2 RANK, 3 ROT, 4 NOPE, 5 VALUE (rows of v_b per
// head), 6 SLOTS (sums of subgroups in shared memory at once), 7 LANES (per row of a weight),
// 8 KEY_ROWS, 9 VALUE_ROWS (rows of k_b and v_b that LANES lanes load at once), 10 AHEAD (cache rows
// of a subgroup on their way), 11 CACHE_ROWS; QUERY: 12 Q_RANK, 13 QUERY_ROWS
// Shared memory: kernels/mla_token_launch.py.

#include "exchange.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint SUBGROUP = 8u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint ROT = 32u;
layout(constant_id = 4) const uint NOPE = 64u;
layout(constant_id = 5) const uint VALUE = 64u;
layout(constant_id = 6) const uint SLOTS = 1u;
layout(constant_id = 7) const uint LANES = 2u;
layout(constant_id = 8) const uint KEY_ROWS = 1u;
layout(constant_id = 9) const uint VALUE_ROWS = 1u;
layout(constant_id = 10) const uint AHEAD = 1u;
layout(constant_id = 11) const uint CACHE_ROWS = 1u;
#ifdef QUERY
layout(constant_id = 12) const uint Q_RANK = 32u;
layout(constant_id = 13) const uint QUERY_ROWS = 1u;
const uint INPUTS = Q_RANK > RANK ? Q_RANK : RANK;
#else
const uint Q_RANK = 0u;
const uint INPUTS = RANK;
#endif

const uint HEAD = NOPE + ROT, WIDTH = RANK + ROT;
const uint TEAMS = WORKGROUP / SUBGROUP, GROUPS = WORKGROUP / LANES;
const uint VECS = RANK / 8u, HALF = VECS + 4u;       // 16-byte vectors of a latent; see join()
const uint OWN = (VECS + SUBGROUP - 1u) / SUBGROUP;  // of a lane
const uint KEYS = (ROT / 2u + SUBGROUP - 1u) / SUBGROUP;  // words of a rotated key, of a lane
const uint PIECES = (NOPE / 8u + LANES - 1u) / LANES;     // vectors of a row of k_b, of a lane
const uint CHUNKS = RANK / 32u, V_OWN = (CHUNKS + LANES - 1u) / LANES;

shared float absorbed[WIDTH];        // times the scale of scores
shared uvec4 fresh[WIDTH / 8u];      // the token's own cache row
shared vec2 state[TEAMS];            // largest score, sum of exponentials
shared vec4 slots[SLOTS * 2u * HALF];
shared uvec4 xq[INPUTS / 16u];       // a vector in int8, groups of 16
shared vec2 xs[INPUTS / 16u];
shared float outs[VALUE];

uvec4 v_a[VALUE_ROWS * V_OWN], v_b[VALUE_ROWS * V_OWN];
vec4 v_s[VALUE_ROWS * V_OWN];

// Sums that a lane holds after each exchange
#define COUNTS(N, ROWS) \
    const uint N##0 = ROWS, N##1 = HALVED(2u, N##0), N##2 = HALVED(4u, N##1); \
    const uint N##3 = HALVED(8u, N##2), N##4 = HALVED(16u, N##3), N##5 = HALVED(32u, N##4);
// Sums of rows over LANES lanes: a lane then has N##5 of them, from row `first` on
#define ROW_SUMS(SUMS, N) \
    EXCHANGE(SUMS, N##0, N##1, (LANES / 2u)) \
    EXCHANGE(SUMS, N##1, N##2, (LANES / 4u)) \
    EXCHANGE(SUMS, N##2, N##3, (LANES / 8u)) \
    EXCHANGE(SUMS, N##3, N##4, (LANES / 16u)) \
    EXCHANGE(SUMS, N##4, N##5, (LANES / 32u))
// Whether the lane's sums are not also those of a lower lane
#define HOLDS(ROWS) (ROWS >= LANES || lane % (LANES / ROWS) == 0u)

COUNTS(key_sums_, KEY_ROWS)
COUNTS(value_sums_, VALUE_ROWS)

// The chunks of ROWS rows that a lane multiplies; `row(r)`: number of the first chunk of row r
#define LOAD_CHUNKS(A, B, S, ROWS, COUNT, PER_ROW, FROM) \
    FLAT for (uint r = 0u; r < ROWS; r++) \
        FLAT for (uint i = 0u; i < COUNT; i++) { \
            uint g = FROM + min(lane + i * LANES, PER_ROW - 1u); \
            chunk_bytes(g, A[r * COUNT + i], B[r * COUNT + i]); \
            S[r * COUNT + i] = chunk_scales(g); \
        }

// As chunk_dot_q8, of a chunk that is there already and of x in shared memory
float dot_of(uvec4 a, uvec4 b, vec4 s, uint c) {
    uint ga = chunk_a(c) / 16u, gb = chunk_b(c) / 16u;
    vec2 za = xs[ga], zb = xs[gb];
    float da = float(dot16(a, xq[ga])) * za.x - QUANT_OFFSET * za.y;
    float db = float(dot16(b, xq[gb])) * zb.x - OFFSET_B * zb.y;
#if !defined(MINIMA) && !defined(SCALES_16)
    return s.x * (da + db);
#elif defined(Q4_1) || defined(Q5_1)
    return s.x * (da + db) + s.y * (za.y + zb.y);
#else
    return s.x * da + s.y * za.y + s.z * db + s.w * zb.y;
#endif
}

#define DOTS(SUMS, A, B, S, ROWS, COUNT, PER_ROW) \
    FLAT for (uint r = 0u; r < ROWS; r++) { \
        SUMS[r] = 0.0; \
        FLAT for (uint i = 0u; i < COUNT; i++) { \
            uint c = lane + i * LANES, e = r * COUNT + i; \
            float own = dot_of(A[e], B[e], S[e], min(c, PER_ROW - 1u)); \
            SUMS[r] += c < PER_ROW ? own : 0.0; \
        } \
    }

float subgroup_sum(float v) {
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) v += subgroupShuffleXor(v, d);
    return v;
}

float subgroup_most(float v) {
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) v = max(v, subgroupShuffleXor(v, d));
    return v;
}

// Four values in int8; four neighbouring lanes share a group of 16. `z`: its scale and scaled sum
uint quantized(vec4 v, out vec2 z) {
    vec4 size = abs(v);
    float most = max(max(size.x, size.y), max(size.z, size.w));
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    vec4 q = roundEven(v * (most > 0.0 ? 127.0 / most : 0.0));
    float sum = q.x + q.y + q.z + q.w;
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    z = vec2(most / 127.0, most / 127.0 * sum);
    uvec4 b = uvec4(ivec4(q)) & 0xFFu;
    return b.x | (b.y << 8) | (b.z << 16) | (b.w << 24);
}

// Values 4 n … 4 n + 3 of x
void quantize_x(uint n, vec4 v) {
    vec2 z;
    xq[n / 4u][n & 3u] = quantized(v, z);
    if ((n & 3u) == 0u) xs[n / 4u] = z;
}

vec2 turned(uint pos, uint pair, vec2 v) {
    vec2 cs = rope[pos * (ROT / 2u) + pair];
    return vec2(v.x * cs.x - v.y * cs.y, v.x * cs.y + v.y * cs.x);
}

void keep_word(uint i, uint word, uint at, bool stores) {
    fresh[i / 4u][i & 3u] = word;
    if (stores) k_words[at + i] = word;
}

// The token's cache row, by one subgroup: normalised latent, rotated key
void make_row(uint pos, uint lane, bool stores) {
    const uint FOURS = RANK / 4u, COUNT = (FOURS + SUBGROUP - 1u) / SUBGROUP;
    uint from = (FIRST + RANK) / 4u, to = p.k_base + pos * (WIDTH / 2u);
    vec4 v[COUNT], gain[COUNT];
    float squares = 0.0;
    FLAT for (uint i = 0u; i < COUNT; i++) {
        uint at = min(lane + i * SUBGROUP, FOURS - 1u);
        v[i] = a[FIRST / 4u + at];
        gain[i] = uintBitsToFloat(h4[(p.h_p0 + Q_RANK) / 4u + at]);
    }
    FLAT for (uint i = 0u; i < COUNT; i++)
        squares += lane + i * SUBGROUP < FOURS ? dot(v[i], v[i]) : 0.0;
    float scale = inversesqrt(subgroup_sum(squares) / float(RANK) + p.eps);
    FLAT for (uint i = 0u; i < COUNT; i++) {
        uint at = lane + i * SUBGROUP;
        if (at >= FOURS) break;
        vec4 own = v[i] * scale * gain[i];
        keep_word(2u * at, packHalf2x16(own.xy), to, stores);
        keep_word(2u * at + 1u, packHalf2x16(own.zw), to, stores);
    }
    for (uint i = lane; i < ROT / 2u; i += SUBGROUP) {
        vec4 four = a[from + i / 2u];
        vec2 key = turned(pos, i, (i & 1u) == 0u ? four.xy : four.zw);
        keep_word(RANK / 2u + i, packHalf2x16(key), to, stores);
    }
}

#include "mla_token_query.glsl"
#include "mla_token_attend.glsl"

void load_values(uint head, uint v0, uint lane) {
    LOAD_CHUNKS(v_a, v_b, v_s, VALUE_ROWS, V_OWN, CHUNKS,
                (head * VALUE + min(v0 + r, VALUE - 1u)) * CHUNKS)
}

// The head's rows of v_b times x, into int8
void expand(uint head, uint t) {
    uint lane = t % LANES, row0 = t / LANES * VALUE_ROWS;
    for (uint v0 = row0; v0 < VALUE; v0 += GROUPS * VALUE_ROWS) {
        if (v0 != row0) load_values(head, v0, lane);
        float sum[VALUE_ROWS];
        DOTS(sum, v_a, v_b, v_s, VALUE_ROWS, V_OWN, CHUNKS)
        uint first = 0u;
        ROW_SUMS(sum, value_sums_)
        FLAT for (uint i = 0u; i < value_sums_5; i++)
            if (HOLDS(VALUE_ROWS) && v0 + first + i < VALUE) outs[v0 + first + i] = sum[i];
    }
    barrier();
    for (uint n = t; n < VALUE / 4u; n += WORKGROUP) {
        vec2 z;
        uint word = quantized(vec4(outs[4u * n], outs[4u * n + 1u], outs[4u * n + 2u],
                                   outs[4u * n + 3u]), z);
        yq[head * (VALUE / 4u) + n] = word;
        if ((n & 3u) == 0u) ys[(head * VALUE + 4u * n) / 16u] = z;
    }
}

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint lane = gl_SubgroupInvocationID, team = gl_SubgroupID, t = team * SUBGROUP + lane;
    uint head = gl_WorkGroupID.x, pos = step[STEP_POS];
#ifdef QUERY
    load_query(head, t);
    compress(t, team, lane);
    if (stopped) return;
    load_keys(head, 0u, t);
    load_rows(team, lane);
    if (team == TEAMS - 1u) make_row(pos, lane, head == 0u);
    make_query(head, t);
#else
    load_rows(team, lane);
    load_keys(head, 0u, t);
    if (stopped) return;
    if (team == TEAMS - 1u) make_row(pos, lane, head == 0u);
#endif
    if (team == TEAMS - 1u) rotate_query(head, pos, lane);
    absorb(head, t);
    barrier();
    attend(pos, team, lane);
    load_values(head, t / LANES * VALUE_ROWS, t % LANES);
    join(t, team, lane);
    expand(head, t);
}
