#version 450
#extension GL_GOOGLE_include_directive : require
// How fast a buffer can be read: every vector once, eight in flight per invocation, and one word
// of their exclusive or per invocation, so that no read can be left out.
#include "types.glsl"

layout(local_size_x_id = 0) in;

READS(0, uvec4, x)
WRITES(1, uint, y)
PUSH { uint count; uint threads; } p;  // vectors, invocations

void main() {
    uint t = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x
        + gl_LocalInvocationID.x;
    if (t >= p.threads) return;
    uvec4 all = uvec4(0u);
    uint i = t;
    for (; i + 7u * p.threads < p.count; i += 8u * p.threads) {
        uvec4 v[8];
        FLAT for (uint k = 0u; k < 8u; k++) v[k] = x[i + k * p.threads];
        FLAT for (uint k = 0u; k < 8u; k++) all ^= v[k];
    }
    for (; i < p.count; i += p.threads) all ^= x[i];
    y[t] = all.x ^ all.y ^ all.z ^ all.w;
}
