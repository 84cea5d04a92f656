#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
// How fast packed bytes are multiplied: eight chains per invocation of a' = a · b + a, where a
// and b are four signed bytes, 16 of each per round.
#include "types.glsl"

spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018],
                  id = 4450)
int signed_dot4(uint a, uint b, spirv_literal int packed_4x8);

layout(local_size_x_id = 0) in;

WRITES(0, uint, y)
PUSH { uint threads; uint rounds; uint factor; } p;

void main() {
    uint t = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x
        + gl_LocalInvocationID.x;
    if (t >= p.threads) return;
    uint a[8];
    FLAT for (uint k = 0u; k < 8u; k++) a[k] = t * 8u + k;
    for (uint r = 0u; r < p.rounds; r++) {
        FLAT for (uint i = 0u; i < 16u; i++) {
            FLAT for (uint k = 0u; k < 8u; k++)
                a[k] += uint(signed_dot4(a[k], p.factor, 0));
        }
    }
    y[t] = a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}
