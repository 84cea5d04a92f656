#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// From absorbed queries (mla_absorb_q8) to the heads' values in int8: SHARES workgroups per head make
// the same scores, softmax and weighted latent, each of them its rows of v_b. Weights and first cache
// rows are on their way from the start.
//
// spec: 0 workgroup, 1 subgroup size (at least 4), 2 RANK, 3 ROT, 4 PARTS (summands of an absorbed
// query), 5 VALUE (rows of v_b per head), 6 SLOTS (sums of subgroups in shared memory at once),
// 7 CACHE_ROWS, 8 AHEAD (cache rows of a subgroup on their way), 9 SHARES (divides VALUE / 16),
// 10 VALUE_LANES, 11 VALUE_ROWS (rows of v_b that so many lanes load at once)
// Shared memory: kernels/mla_attend_q8.py.
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)           // v_b: (heads * VALUE, RANK)
READS(1, vec4, q)      // per head: PARTS summands (RANK), part with position (ROT)
READS(2, uvec4, k)
WRITES(3, uint, yq)    // (heads * VALUE) values
WRITES(4, vec2, ys)
READS(5, uint, step)
layout(std430, set = 0, binding = 2) readonly buffer k_buf_words { uint k_words[]; };
PUSH { float scale; uint k_base; PLANES(w); } p;

#include "blocks.glsl"
#include "dot_q8.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint SUBGROUP = 8u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint ROT = 32u;
layout(constant_id = 4) const uint PARTS = 1u;
layout(constant_id = 5) const uint VALUE = 64u;
layout(constant_id = 6) const uint SLOTS = 1u;
layout(constant_id = 7) const uint CACHE_ROWS = 1u;
layout(constant_id = 8) const uint AHEAD = 1u;
layout(constant_id = 9) const uint SHARES = 1u;
layout(constant_id = 10) const uint VALUE_LANES = 2u;
layout(constant_id = 11) const uint VALUE_ROWS = 1u;

const uint WIDTH = RANK + ROT, KEYS = (ROT / 2u + SUBGROUP - 1u) / SUBGROUP;
const uint TEAMS = WORKGROUP / SUBGROUP, VALUES = VALUE / SHARES;
const uint FOURS = WIDTH / 4u, QUERY_OWN = (FOURS + WORKGROUP - 1u) / WORKGROUP;

shared float absorbed[WIDTH];   // times the scale of scores
shared uvec4 xq[RANK / 16u];    // the weighted latent in int8, groups of 16
shared vec2 xs[RANK / 16u];

#include "mla_token_int8.glsl"
#include "mla_token_attend.glsl"
#include "mla_token_values.glsl"

// The absorbed query: its summands added, the part with position behind
void take_absorbed(uint head, uint t) {
    const uint EACH = PARTS * (RANK / 4u) + ROT / 4u;
    FLAT for (uint i = 0u; i < QUERY_OWN; i++) {
        uint n = t + i * WORKGROUP, at = min(n, FOURS - 1u);
        bool turned = at >= RANK / 4u;
        vec4 sum = q[head * EACH + at + (turned ? (PARTS - 1u) * (RANK / 4u) : 0u)];
        FLAT for (uint j = 1u; j < PARTS; j++)
            if (!turned) sum += q[head * EACH + at + j * (RANK / 4u)];
        if (n >= FOURS) continue;
        FLAT for (uint c = 0u; c < 4u; c++) absorbed[4u * n + c] = sum[c] * p.scale;
    }
    barrier();
}

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint lane = gl_SubgroupInvocationID, team = gl_SubgroupID, t = team * SUBGROUP + lane;
    uint head = gl_WorkGroupID.x / SHARES, pos = step[STEP_POS];
    uint first = head * VALUE + gl_WorkGroupID.x % SHARES * VALUES;
    load_rows(team, lane);
    load_values(first, t / VALUE_LANES * VALUE_ROWS, t % VALUE_LANES);
    if (stopped) return;
    take_absorbed(head, t);
    attend(pos, team, lane);
    join(t, team, lane);
    expand(first, t);
}
