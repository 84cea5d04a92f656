#version 450
#extension GL_GOOGLE_include_directive : require
// Logits of the router for a batch, norm and product in one and in float32: a workgroup makes
// 4 BLOCKS experts times 4 tokens. LANES invocations share the columns of 4 x 4 products, four
// columns at a time; their sums are added in one order always.
// spec: 0 workgroup = BLOCKS * LANES, 1 LANES
// Shared memory: 4 * LANES * (16 * BLOCKS + 5) bytes
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint LANES = 32u;

READS(0, vec4, x)       // (batch, cols)
WEIGHT(1, g)
WEIGHT(2, w)            // (rows, cols), a row per expert, float32
WRITES(3, float, logits)
READS(4, uint, step)
PUSH { uint cols; float eps; uint rows; PLANES(g); PLANES(w); } p;

const uint BLOCKS = WORKGROUP / LANES, OUTS = BLOCKS * 16u, PITCH = OUTS + 1u;
shared float partial[LANES * PITCH];
shared vec4 squares[LANES];

float sums[16];

void main() {
    uint n = step[STEP_N], tok0 = gl_WorkGroupID.x * 4u, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || tok0 >= n) return;
    uint lane = t % LANES, block = t / LANES, vectors = p.cols / 4u;
    uint e0 = gl_WorkGroupID.y * BLOCKS * 4u;
    vec4 square = vec4(0.0);
    FLAT for (uint i = 0u; i < 16u; i++) sums[i] = 0.0;
    for (uint c = lane; c < vectors; c += LANES) {
        vec4 gain = uintBitsToFloat(g4[p.g_p0 / 4u + c]), v[4];
        FLAT for (uint j = 0u; j < 4u; j++) {
            v[j] = x[min(tok0 + j, n - 1u) * vectors + c];
            square[j] += dot(v[j], v[j]);
            v[j] *= gain;
        }
        FLAT for (uint i = 0u; i < 4u; i++) {
            uint row = min(e0 + block * 4u + i, p.rows - 1u);
            vec4 u = uintBitsToFloat(w4[p.w_p0 / 4u + row * vectors + c]);
            FLAT for (uint j = 0u; j < 4u; j++) sums[i * 4u + j] += dot(u, v[j]);
        }
    }
    FLAT for (uint i = 0u; i < 16u; i++) partial[lane * PITCH + block * 16u + i] = sums[i];
    if (block == 0u) squares[lane] = square;
    barrier();
    for (uint o = t; o < OUTS; o += WORKGROUP) {
        uint expert = e0 + o / 4u, token = tok0 + o % 4u;
        if (expert >= p.rows || token >= n) continue;
        float sum = 0.0, all = 0.0;
        for (uint i = 0u; i < LANES; i++) {
            sum += partial[i * PITCH + o];
            all += squares[i][o & 3u];
        }
        logits[token * p.rows + expert] = sum * inversesqrt(all / float(p.cols) + p.eps);
    }
}
