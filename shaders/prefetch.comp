#version 450
#extension GL_GOOGLE_include_directive : require
// Brings parts of up to four weights into the device's cache while other dispatches run: one word
// of every SECTOR is read, all reads of an invocation at once.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 256u;
layout(constant_id = 1) const uint SECTOR = 8u;  // words
layout(constant_id = 2) const uint EACH = 8u;

WEIGHT(0, a)
WEIGHT(1, b)
WEIGHT(2, c)
WEIGHT(3, d)
UPDATES(4, uint, sink)
READS(5, uint, step)
PUSH {
    uint a_count; uint b_count; uint c_count; uint d_count;  // words from the start of each
    PLANES(a); PLANES(b); PLANES(c); PLANES(d);
} p;

const uint SELDOM = 0x9e3779b9u;

const uint CHUNK = THREADS * EACH;  // reads of a workgroup

uint groups(uint count) { return (count + CHUNK * SECTOR - 1u) / (CHUNK * SECTOR); }

#define TAKE(name) \
    FLAT for (uint i = 0u; i < EACH; i++) { \
        uint word = (group * CHUNK + gl_LocalInvocationID.x + i * THREADS) * SECTOR; \
        got[i] = word < p.name##_count ? name[p.name##_p0 + word] : 0u; \
    }

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint group = gl_WorkGroupID.x, got[EACH], all = 0u;
    uint to_b = groups(p.a_count), to_c = to_b + groups(p.b_count);
    uint to_d = to_c + groups(p.c_count);
    if (group >= to_d) { group -= to_d; TAKE(d) }
    else if (group >= to_c) { group -= to_c; TAKE(c) }
    else if (group >= to_b) { group -= to_b; TAKE(b) }
    else { TAKE(a) }
    FLAT for (uint i = 0u; i < EACH; i++) all ^= got[i];
    // so that no read can be left out; what is written there is never read
    if (all == SELDOM) sink[0] = all;
}
