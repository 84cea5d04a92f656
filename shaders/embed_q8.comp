#version 450
#extension GL_GOOGLE_include_directive : require
// The row of the embedding matrix for a single token, and the row times a gain as int8 groups of
// 16. One invocation per chunk, which is two such groups.
// build: [F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K|Q2_K|Q3_K|IQ4_NL|IQ4_XS|MXFP4]
// build: [NVFP4|TQ1_0|TQ2_0|IQ1_S|IQ1_M|IQ2_XXS|IQ2_XS|IQ2_S|IQ3_XXS|IQ3_S]
// build: [INT8|INT4_G32|INT4_G64|INT4_G128|INT3_G64]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

READS(0, uint, tokens)
WEIGHT(1, w)
WEIGHT(2, g)
UPDATES(3, vec4, x)
WRITES(4, uvec4, yq)
WRITES(5, vec2, ys)
WRITES(6, float, ssq)
READS(7, uint, step)
// w holds the vocabulary rows [row0, row0 + rows): other tokens are another dispatch's
PUSH { uint n_embd; uint row0; uint rows; float scale; PLANES(g); PLANES(w); } p;

#include "blocks.glsl"

void put_group(uint column, vec4 v[4]) {
    float most = 0.0, squares = 0.0, sum = 0.0;
    FLAT for (uint k = 0u; k < 4u; k++) {
        v[k] *= p.scale;
        x[column / 4u + k] = v[k];
        squares += dot(v[k], v[k]);
        v[k] *= uintBitsToFloat(g4[(p.g_p0 + column) / 4u + k]);
        vec4 size = abs(v[k]);
        most = max(most, max(max(size.x, size.y), max(size.z, size.w)));
    }
    float inverse = most > 0.0 ? 127.0 / most : 0.0;
    uvec4 packed;
    FLAT for (uint k = 0u; k < 4u; k++) {
        vec4 q = roundEven(v[k] * inverse);
        sum += dot(q, vec4(1.0));
        uvec4 u = uvec4(ivec4(q)) & 0xFFu;
        packed[k] = u.x | (u.y << 8) | (u.z << 16) | (u.w << 24);
    }
    yq[column / 16u] = packed;
    ys[column / 16u] = vec2(most / 127.0, most / 127.0 * sum);
    ssq[column / 16u] = squares;
}

void main() {
    uint c = gl_GlobalInvocationID.x, chunks = p.n_embd / 32u;
    if (step[STEP_STOP] != 0u || c >= chunks) return;
    uint row = tokens[0] - p.row0;  // wraps to a large number below row0
    if (row >= p.rows) return;
    vec4 a[4], b[4];
    chunk_values(row * chunks + c, a, b);
    put_group(chunk_a(c), a);
    put_group(chunk_b(c), b);
}
