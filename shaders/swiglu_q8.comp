#version 450
#extension GL_GOOGLE_include_directive : require
// silu(gate) * up of one token as int8 groups of 16; gu is gate (n_ff values), then up. One invocation
// per group. For gate and up of different formats, which the fused kernels cannot take.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

READS(0, vec4, gu)
WRITES(1, uint, yq)
WRITES(2, vec2, ys)
READS(3, uint, step)
PUSH { uint n_ff; } p;

#include "gate.glsl"

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (step[STEP_STOP] != 0u || i >= p.n_ff / 16u) return;
    vec4 v[4], most = vec4(0.0), sum = vec4(0.0);
    FLAT for (uint k = 0u; k < 4u; k++) {
        v[k] = activated(gu[i * 4u + k]) * gu[p.n_ff / 4u + i * 4u + k];
        most = max(most, abs(v[k]));
    }
    float largest = max(max(most.x, most.y), max(most.z, most.w));
    float inverse = largest > 0.0 ? 127.0 / largest : 0.0;
    FLAT for (uint k = 0u; k < 4u; k++) {
        vec4 q = roundEven(v[k] * inverse);
        sum += q;
        uvec4 b = uvec4(ivec4(q)) & 0xFFu;
        yq[i * 4u + k] = b.x | b.y << 8 | b.z << 16 | b.w << 24;
    }
    float scale = largest / 127.0;
    ys[i] = vec2(scale, scale * (sum.x + sum.y + sum.z + sum.w));
}
