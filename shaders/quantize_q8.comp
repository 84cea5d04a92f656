#version 450
#extension GL_GOOGLE_include_directive : require
// x * gain of the last row of a batch as int8 groups of 16, and the sum of squares of x per group.
// One invocation per group.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

READS(0, float, x)
WEIGHT(1, g)
WRITES(2, uint, yq)
WRITES(3, vec2, ys)
WRITES(4, float, ssq)
READS(5, uint, step)
PUSH { uint cols; PLANES(g); } p;

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (step[STEP_STOP] != 0u || i >= p.cols / 16u) return;
    uint from = (step[STEP_N] - 1u) * p.cols + i * 16u;
    float value[16], most = 0.0, squares = 0.0, sum = 0.0;
    for (uint j = 0u; j < 16u; j++) {
        float own = x[from + j];
        squares += own * own;
        value[j] = own * uintBitsToFloat(g[p.g_p0 + i * 16u + j]);
        most = max(most, abs(value[j]));
    }
    float inverse = most > 0.0 ? 127.0 / most : 0.0;
    for (uint k = 0u; k < 4u; k++) {
        uint packed = 0u;
        for (uint j = 0u; j < 4u; j++) {
            float q = roundEven(value[4u * k + j] * inverse);
            sum += q;
            packed |= (uint(int(q)) & 0xFFu) << (8u * j);
        }
        yq[i * 4u + k] = packed;
    }
    ys[i] = vec2(most / 127.0, most / 127.0 * sum);
    ssq[i] = squares;
}
