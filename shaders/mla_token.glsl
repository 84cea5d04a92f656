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
// head), 6 SLOTS (sums of subgroups in shared memory at once), 7 CACHE_ROWS, 8 AHEAD (cache rows of a
// subgroup on their way), 9 KEY_LANES, 10 KEY_ROWS (rows of k_b that so many lanes load at once),
// 11 VALUE_LANES, 12 VALUE_ROWS (those of v_b); QUERY: 13 Q_RANK, 14 QUERY_LANES, 15 QUERY_ROWS
// Shared memory: kernels/mla_token_launch.py.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint SUBGROUP = 8u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint ROT = 32u;
layout(constant_id = 4) const uint NOPE = 64u;
layout(constant_id = 5) const uint VALUE = 64u;
layout(constant_id = 6) const uint SLOTS = 1u;
layout(constant_id = 7) const uint CACHE_ROWS = 1u;
layout(constant_id = 8) const uint AHEAD = 1u;
layout(constant_id = 9) const uint KEY_LANES = 2u;
layout(constant_id = 10) const uint KEY_ROWS = 1u;
layout(constant_id = 11) const uint VALUE_LANES = 2u;
layout(constant_id = 12) const uint VALUE_ROWS = 1u;
#ifdef QUERY
layout(constant_id = 13) const uint Q_RANK = 32u;
layout(constant_id = 14) const uint QUERY_LANES = 2u;
layout(constant_id = 15) const uint QUERY_ROWS = 1u;
#else
const uint Q_RANK = 0u;
#endif

const uint WIDEST = Q_RANK > RANK ? Q_RANK : RANK, INPUTS = WIDEST > NOPE ? WIDEST : NOPE;
const uint HEAD = NOPE + ROT, WIDTH = RANK + ROT;
const uint TEAMS = WORKGROUP / SUBGROUP;
const uint VECS = RANK / 8u, HALF = VECS + 4u;       // 16-byte vectors of a latent; see join()
const uint OWN = (VECS + SUBGROUP - 1u) / SUBGROUP;  // of a lane
const uint KEYS = (ROT / 2u + SUBGROUP - 1u) / SUBGROUP;  // words of a rotated key, of a lane

shared float absorbed[WIDTH];        // times the scale of scores
shared uvec4 fresh[WIDTH / 8u];      // the token's own cache row
shared vec2 state[TEAMS];            // largest score, sum of exponentials
shared vec4 slots[SLOTS * 2u * HALF];
shared uvec4 xq[INPUTS / 16u];       // a vector in int8, groups of 16
shared vec2 xs[INPUTS / 16u];
shared float outs[VALUE];

#include "mla_token_units.glsl"

const uint V_UNITS = RANK / (32u * UNIT), V_OWN = (V_UNITS + VALUE_LANES - 1u) / VALUE_LANES;
Unit v_units[VALUE_ROWS * V_OWN];

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

vec2 pair_of(vec4 four, uint i) { return (i & 1u) == 0u ? four.xy : four.zw; }

void keep_word(uint i, uint word, uint at, bool stores) {
    fresh[i / 4u][i & 3u] = word;
    if (stores) k_words[at + i] = word;
}

const uint FOURS = RANK / 4u, ROW_OWN = (FOURS + SUBGROUP - 1u) / SUBGROUP;
vec4 row_latent[ROW_OWN], row_gain[ROW_OWN], row_key[KEYS];

// What the token's cache row is made of, for one subgroup
void load_row(uint lane) {
    FLAT for (uint i = 0u; i < ROW_OWN; i++) {
        uint at = min(lane + i * SUBGROUP, FOURS - 1u);
        row_latent[i] = a[FIRST / 4u + at];
        row_gain[i] = uintBitsToFloat(h4[(p.h_p0 + Q_RANK) / 4u + at]);
    }
    FLAT for (uint i = 0u; i < KEYS; i++)
        row_key[i] = a[(FIRST + RANK) / 4u + min(lane + i * SUBGROUP, ROT / 2u - 1u) / 2u];
}

// The row: normalised latent, rotated key
void make_row(uint pos, uint lane, bool stores) {
    uint to = p.k_base + pos * (WIDTH / 2u);
    float squares = 0.0;
    FLAT for (uint i = 0u; i < ROW_OWN; i++)
        squares += lane + i * SUBGROUP < FOURS ? dot(row_latent[i], row_latent[i]) : 0.0;
    FLAT for (uint j = 0u; j < KEYS; j++) {
        uint i = lane + j * SUBGROUP;
        vec2 key = turned(pos, min(i, ROT / 2u - 1u), pair_of(row_key[j], i));
        if (i < ROT / 2u) keep_word(RANK / 2u + i, packHalf2x16(key), to, stores);
    }
    float scale = inversesqrt(subgroup_sum(squares) / float(RANK) + p.eps);
    FLAT for (uint i = 0u; i < ROW_OWN; i++) {
        uint at = lane + i * SUBGROUP;
        vec4 own = row_latent[i] * scale * row_gain[i];
        if (at < FOURS) {
            keep_word(2u * at, packHalf2x16(own.xy), to, stores);
            keep_word(2u * at + 1u, packHalf2x16(own.zw), to, stores);
        }
    }
}

#include "mla_token_attend.glsl"
#include "mla_token_query.glsl"

void load_values(uint head, uint v0, uint lane) {
    LOAD_UNITS(v_units, VALUE_ROWS, V_OWN, V_UNITS, VALUE_LANES,
               (head * VALUE + min(v0 + r, VALUE - 1u)) * V_UNITS)
}

// The head's rows of v_b times x, into int8
void expand(uint head, uint t) {
    uint lane = t % VALUE_LANES, row0 = t / VALUE_LANES * VALUE_ROWS;
    for (uint v0 = row0; v0 < VALUE; v0 += WORKGROUP / VALUE_LANES * VALUE_ROWS) {
        if (v0 != row0) load_values(head, v0, lane);
        float sum[VALUE_ROWS];
        DOT_UNITS(sum, v_units, VALUE_ROWS, V_OWN, V_UNITS, VALUE_LANES)
        if (lane == 0u)
            FLAT for (uint r = 0u; r < VALUE_ROWS; r++) if (v0 + r < VALUE) outs[v0 + r] = sum[r];
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
    bool last = team == TEAMS - 1u, stores = head == 0u && !stopped;
    load_input(head, t);
    if (last) load_row(lane);
#ifdef QUERY
    load_queries(head, t / QUERY_LANES * QUERY_ROWS, t % QUERY_LANES);
    if (last) make_row(pos, lane, stores);
    compress(t, team, lane);
    if (stopped) return;
    load_keys(head, t / KEY_LANES * KEY_ROWS, t % KEY_LANES);
    make_query(head, t);
    load_rows(team, lane);
    barrier();
#else
    load_keys(head, t / KEY_LANES * KEY_ROWS, t % KEY_LANES);
    load_rows(team, lane);
    if (last) make_row(pos, lane, stores);
    if (stopped) return;
#endif
    if (last) rotate_query(head, pos, lane);
    quantize_query(head, t);
    absorb(head, t);
    barrier();
    attend(pos, team, lane);
    load_values(head, t / VALUE_LANES * VALUE_ROWS, t % VALUE_LANES);
    join(t, team, lane);
    expand(head, t);
}
