#version 450
#extension GL_GOOGLE_include_directive : require
// The pairs (token, slot) of a batch in order of their experts, one workgroup per expert: start[e] is
// the first row of expert e, order[row] the pair in it, place[pair] the row of a pair or NOWHERE. An
// invocation has a run of pairs; sums over those before it tell it where its own ones go, so pairs
// of an expert keep their order and results do not depend on timing.
// spec: 0 workgroup, 1 EXPERTS (shared ones included), 2 SLOTS
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint EXPERTS = 8u;
layout(constant_id = 2) const uint SLOTS = 2u;

READS(0, vec2, route)
WRITES(1, uint, start)
WRITES(2, uint, order)
WRITES(3, uint, place)
READS(4, uint, step)

const uint NOWHERE = 0xFFFFFFFFu;
shared uvec2 sums[WORKGROUP];  // pairs of this expert, pairs of experts before it

// Inclusive sums over the invocations up to t
void scan(uint t) {
    for (uint d = 1u; d < WORKGROUP; d *= 2u) {
        barrier();
        uvec2 before = t >= d ? sums[t - d] : uvec2(0u);
        barrier();
        sums[t] += before;
    }
    barrier();
}

void main() {
    uint t = gl_LocalInvocationID.x, pairs = step[STEP_N] * SLOTS;
    int e = int(gl_WorkGroupID.x);
    if (step[STEP_STOP] != 0u) return;
    uint run = (pairs + WORKGROUP - 1u) / WORKGROUP;
    uint first = min(t * run, pairs), stop = min(first + run, pairs);
    uvec2 own = uvec2(0u);
    for (uint i = first; i < stop; i++) {
        int expert = int(route[i].x);
        own += uvec2(expert == e ? 1u : 0u, expert >= 0 && expert < e ? 1u : 0u);
        if (e == 0 && expert < 0) place[i] = NOWHERE;
    }
    sums[t] = own;
    scan(t);
    uint begin = sums[WORKGROUP - 1u].y, row = begin + sums[t].x - own.x;
    if (t == 0u) start[e] = begin;
    if (t == 0u && e == int(EXPERTS) - 1) start[EXPERTS] = begin + sums[WORKGROUP - 1u].x;
    for (uint i = first; i < stop && own.x > 0u; i++) {
        if (int(route[i].x) != e) continue;
        order[row] = i;
        place[i] = row++;
    }
}
