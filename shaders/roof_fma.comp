#version 450
#extension GL_GOOGLE_include_directive : require
// How fast float32 is multiplied and added: eight chains of fused multiply-adds per invocation,
// 16 of each per round.
#include "types.glsl"

layout(local_size_x_id = 0) in;

WRITES(0, float, y)
PUSH { uint threads; uint rounds; float factor; float term; } p;

void main() {
    uint t = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x
        + gl_LocalInvocationID.x;
    if (t >= p.threads) return;
    float a[8];
    FLAT for (uint k = 0u; k < 8u; k++) a[k] = float(t % 16u + k);
    for (uint r = 0u; r < p.rounds; r++) {
        FLAT for (uint i = 0u; i < 16u; i++) {
            FLAT for (uint k = 0u; k < 8u; k++) a[k] = fma(a[k], p.factor, p.term);
        }
    }
    y[t] = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
}
