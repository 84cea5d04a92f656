#version 450
#extension GL_GOOGLE_include_directive : require
// Brings part of a weight into the device's cache while other dispatches run: one word of every
// SECTOR is read, all reads of an invocation at once.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 256u;
layout(constant_id = 1) const uint SECTOR = 8u;  // words
layout(constant_id = 2) const uint EACH = 8u;

WEIGHT(0, w)
UPDATES(1, uint, sink)
READS(2, uint, step)
PUSH { uint count; PLANES(w); } p;  // words from the start of the first plane

const uint SELDOM = 0x9e3779b9u;

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint at = gl_WorkGroupID.x * (THREADS * EACH) + gl_LocalInvocationID.x;
    uint got[EACH], all = 0u;
    FLAT for (uint i = 0u; i < EACH; i++) {
        uint word = (at + i * THREADS) * SECTOR;
        got[i] = word < p.count ? w[p.w_p0 + word] : 0u;
    }
    FLAT for (uint i = 0u; i < EACH; i++) all ^= got[i];
    // so that no read can be left out; what is written there is never read
    if (all == SELDOM) sink[0] = all;
}
