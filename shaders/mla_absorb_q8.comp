#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// From a token's compressed query to absorbed ones and the cache's row, several workgroups per head.
// Part 0 … PARTS - 1 of a head has so many of the columns without position: their rows of q_b, then
// their columns of k_b in Q8_0, which gives a summand of the absorbed query (mla_attend_q8 adds them).
// Part PARTS has the rows with position, which it turns. The last workgroup makes the cache's row.
// So every weight is read once, and no workgroup waits for another.
//
// spec: 0 workgroup, 1 subgroup size (at least 4), 2 RANK, 3 ROT, 4 NOPE, 5 Q_RANK, 6 PARTS (divides
// NOPE / 32), 7 KEY_LANES, 8 KEY_ROWS (rows of k_b that so many lanes load at once), 9 QUERY_LANES,
// 10 QUERY_ROWS (those of q_b). Shared memory: kernels/mla_absorb_q8.py.
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#define QUERY 1
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)           // q_b: (heads * (NOPE + ROT), Q_RANK)
READS(1, vec4, a)      // compressed query (Q_RANK), latent (RANK), key (ROT)
WEIGHT(2, kb)          // k_b: (heads * RANK, NOPE), Q8_0
WEIGHT(3, h)           // gains of the query's norm, then of the latent's
READS(4, vec2, rope)
WRITES(5, float, q)    // per head: PARTS summands (RANK), part with position (ROT)
UPDATES(6, uint, k)
READS(7, uint, step)
PUSH { float eps; uint k_base; PLANES(w); PLANES(kb); PLANES(h); } p;

#include "blocks.glsl"
#include "dot_q8.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint SUBGROUP = 8u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint ROT = 32u;
layout(constant_id = 4) const uint NOPE = 64u;
layout(constant_id = 5) const uint Q_RANK = 32u;
layout(constant_id = 6) const uint PARTS = 1u;
layout(constant_id = 7) const uint KEY_LANES = 2u;
layout(constant_id = 8) const uint KEY_ROWS = 1u;
layout(constant_id = 9) const uint QUERY_LANES = 2u;
layout(constant_id = 10) const uint QUERY_ROWS = 1u;

const uint WIDTH = RANK + ROT, KEYS = (ROT / 2u + SUBGROUP - 1u) / SUBGROUP;
const uint TEAMS = WORKGROUP / SUBGROUP;
const uint COLS = NOPE / PARTS, MOST = COLS > ROT ? COLS : ROT;  // rows of q_b of a workgroup
const uint INPUTS = Q_RANK > COLS ? Q_RANK : COLS;

shared uvec4 xq[INPUTS / 16u];  // a vector in int8, groups of 16
shared vec2 xs[INPUTS / 16u];
uint absorbed_from;  // in q[]

#include "mla_token_int8.glsl"

void keep_word(uint i, uint word, uint at, bool stores) {
    if (stores) k[at + i] = word;
}

#define FIRST Q_RANK
#define GAIN Q_RANK
#include "mla_token_row.glsl"
#define KEEP_ABSORBED(row, sum) q[absorbed_from + row] = sum
#define KEY_COLS COLS
#define ROWS_OF_QUERY MOST
#define SCALE 1.0
#include "mla_token_query.glsl"

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint lane = gl_SubgroupInvocationID, team = gl_SubgroupID, t = team * SUBGROUP + lane;
    uint head = gl_WorkGroupID.x / (PARTS + 1u), part = gl_WorkGroupID.x % (PARTS + 1u);
    uint pos = step[STEP_POS];
    if (gl_WorkGroupID.x == gl_NumWorkGroups.x - 1u) {
        if (team != 0u) return;
        load_row(lane);
        make_row(pos, lane, !stopped);
        return;
    }
    bool turns = part == PARTS;
    uint rows = turns ? ROT : COLS, from = (head * (NOPE + ROT) + part * COLS) * Q_UNITS;
    uint keys = head * RANK * (NOPE / 32u) + part * (COLS / 32u);
    absorbed_from = head * (PARTS * RANK + ROT) + min(part, PARTS - 1u) * RANK;
    load_input(0u, t);
    load_queries(from, rows, t / QUERY_LANES * QUERY_ROWS, t % QUERY_LANES);
    if (!turns) load_keys(keys, t / KEY_LANES * KEY_ROWS, t % KEY_LANES);
    compress(t, team, lane);
    if (stopped) return;
    make_query(from, rows, t);
    barrier();
    if (turns) {
        rotate_query(0u, 0u, pos, t, WORKGROUP);
        return;
    }
    quantize_query(0u, t);
    absorb(keys, t);
}
