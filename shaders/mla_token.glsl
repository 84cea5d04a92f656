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
const uint TEAMS = WORKGROUP / SUBGROUP, VALUES = VALUE;
const uint KEYS = (ROT / 2u + SUBGROUP - 1u) / SUBGROUP;  // words of a rotated key, of a lane

shared float absorbed[WIDTH];        // times the scale of scores
shared uvec4 fresh[WIDTH / 8u];      // the token's own cache row
shared uvec4 xq[INPUTS / 16u];       // a vector in int8, groups of 16
shared vec2 xs[INPUTS / 16u];

#include "mla_token_int8.glsl"

void keep_word(uint i, uint word, uint at, bool stores) {
    fresh[i / 4u][i & 3u] = word;
    if (stores) k_words[at + i] = word;
}

#define GAIN Q_RANK
#include "mla_token_row.glsl"
#define FRESH 1
#include "mla_token_attend.glsl"
#include "mla_token_values.glsl"
#define KEY_FROM(head) ((head) * RANK * (NOPE / 32u))
#define KEEP_ABSORBED(row, sum) absorbed[row] = sum
#define KEY_COLS NOPE
#define ROWS_OF_QUERY HEAD
#define SCALE p.scale
#include "mla_token_query.glsl"

#ifdef QUERY
// The unit of the head's first row of q_b, which lies behind v_b
uint query_from(uint head) {
    return gl_NumWorkGroups.x * VALUE * V_UNITS + head * HEAD * Q_UNITS;
}
#endif

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint lane = gl_SubgroupInvocationID, team = gl_SubgroupID, t = team * SUBGROUP + lane;
    uint head = gl_WorkGroupID.x, pos = step[STEP_POS];
    bool last = team == TEAMS - 1u, stores = head == 0u && !stopped;
    load_input(head, t);
    if (last) load_row(lane);
#ifdef QUERY
    load_queries(query_from(head), HEAD, t / QUERY_LANES * QUERY_ROWS, t % QUERY_LANES);
    if (last) make_row(pos, lane, stores);
    compress(t, team, lane);
    if (stopped) return;
    load_keys(KEY_FROM(head), t / KEY_LANES * KEY_ROWS, t % KEY_LANES);
    make_query(query_from(head), HEAD, t);
    load_rows(team, lane);
    barrier();
#else
    load_keys(KEY_FROM(head), t / KEY_LANES * KEY_ROWS, t % KEY_LANES);
    load_rows(team, lane);
    if (last) make_row(pos, lane, stores);
    if (stopped) return;
#endif
    if (last) rotate_query(head, NOPE / 4u, pos, lane, SUBGROUP);
    quantize_query(head, t);
    absorb(KEY_FROM(head), t);
    barrier();
    attend(pos, team, lane);
    load_values(head * VALUE, t / VALUE_LANES * VALUE_ROWS, t % VALUE_LANES);
    join(t, team, lane);
    expand(head * VALUE, t);
}
