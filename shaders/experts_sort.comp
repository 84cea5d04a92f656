#version 450
#extension GL_GOOGLE_include_directive : require
// The pairs (token, slot) of a batch in order of their experts, by one workgroup: start[e] is the
// first row of expert e, order[row] the pair in it, place[pair] the row of a pair or NOWHERE. An
// invocation collects the pairs of one expert in their own order, so results do not depend on
// timing.
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

const uint NOWHERE = 0xFFFFFFFFu, TILE = 256u;
shared uint count[EXPERTS];
shared ivec4 ids[TILE];  // experts of 4 TILE pairs, -1 for none

void load_tile(uint first, uint pairs, uint t) {
    barrier();
    for (uint i = t; i < TILE; i += WORKGROUP)
        FLAT for (uint k = 0u; k < 4u; k++) {
            uint pair = first + 4u * i + k;
            ids[i][k] = pair < pairs ? int(route[min(pair, pairs - 1u)].x) : -1;
        }
    barrier();
}

void main() {
    uint t = gl_LocalInvocationID.x, pairs = step[STEP_N] * SLOTS;
    if (step[STEP_STOP] != 0u) return;
    for (uint e = t; e < EXPERTS; e += WORKGROUP) count[e] = 0u;
    barrier();
    for (uint i = t; i < pairs; i += WORKGROUP) {
        int expert = int(route[i].x);
        if (expert >= 0) atomicAdd(count[expert], 1u);
        else place[i] = NOWHERE;
    }
    barrier();
    for (uint e0 = 0u; e0 < EXPERTS; e0 += WORKGROUP) {
        uint e = e0 + t, row = 0u;
        for (uint o = 0u; o < min(e, EXPERTS); o++) row += count[o];
        if (e < EXPERTS) start[e] = row;
        if (e == EXPERTS - 1u) start[EXPERTS] = row + count[e];
        for (uint first = 0u; first < pairs; first += 4u * TILE) {
            load_tile(first, pairs, t);
            for (uint i = 0u; i < min(TILE, (pairs - first + 3u) / 4u); i++) {
                ivec4 four = ids[i];
                FLAT for (uint k = 0u; k < 4u; k++) {
                    if (four[k] != int(e)) continue;
                    order[row] = first + 4u * i + k;
                    place[first + 4u * i + k] = row++;
                }
            }
        }
    }
}
