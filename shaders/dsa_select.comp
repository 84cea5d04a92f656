#version 450
#extension GL_GOOGLE_include_directive : require
// The `most` positions of a token with the largest scores, in their own order; of equal ones the
// earlier. One workgroup per token: the smallest chosen score is found a byte at a time, then every
// invocation collects a run of positions. Tokens with fewer positions see all, and need no list.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;

READS(0, float, score) // (batch, positions)
WRITES(1, uint, chosen) // (batch, most)
READS(2, uint, step)
PUSH { uint most; uint positions; } p;

shared uint count[256], above[WORKGROUP], equal[WORKGROUP];
shared uint prefix, wanted;

// Larger scores are larger numbers
uint rank_of(uint at) {
    float own = score[at];
    uint bits = floatBitsToUint(own == 0.0 ? 0.0 : own);  // -0 is no smaller
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

// One more byte of the threshold: of the scores that agree with it so far, the byte at which the
// wanted number is reached from above
void next_byte(uint base, uint len, uint shift, uint t) {
    for (uint i = t; i < 256u; i += WORKGROUP) count[i] = 0u;
    barrier();
    uint mask = shift == 24u ? 0u : 0xFFFFFFFFu << (shift + 8u);
    for (uint i = t; i < len; i += WORKGROUP) {
        uint r = rank_of(base + i);
        if ((r & mask) == (prefix & mask)) atomicAdd(count[(r >> shift) & 255u], 1u);
    }
    barrier();
    if (t == 0u) {
        uint byte = 255u;
        while (byte > 0u && count[byte] < wanted) {
            wanted -= count[byte];
            byte--;
        }
        prefix |= byte << shift;
    }
    barrier();
}

void main() {
    uint t = gl_LocalInvocationID.x, row = gl_WorkGroupID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    uint len = step[STEP_POS] + row + 1u, base = row * p.positions;
    if (len <= p.most) return;
    if (t == 0u) {
        prefix = 0u;
        wanted = p.most;
    }
    barrier();
    for (uint shift = 24u;; shift -= 8u) {
        next_byte(base, len, shift, t);
        if (shift == 0u) break;
    }
    uint each = (len + WORKGROUP - 1u) / WORKGROUP, first = min(t * each, len);
    uint stop = min(first + each, len), over = 0u, same = 0u;
    for (uint i = first; i < stop; i++) {
        uint r = rank_of(base + i);
        if (r > prefix) over++;
        else if (r == prefix) same++;
    }
    above[t] = over;
    equal[t] = same;
    barrier();
    over = 0u, same = 0u;
    for (uint i = 0u; i < t; i++) {
        over += above[i];
        same += equal[i];
    }
    for (uint i = first; i < stop; i++) {
        uint r = rank_of(base + i);
        bool takes = r > prefix || (r == prefix && same < wanted);
        if (takes) chosen[row * p.most + over + min(same, wanted)] = i;
        if (r > prefix) over++;
        else if (r == prefix) same++;
    }
}
