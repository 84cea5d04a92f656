#version 450
#extension GL_GOOGLE_include_directive : require
// Latent attention of a batch, causal, in float32: a workgroup has ROWS rows of (token, head), whatever
// token they belong to, and TILE cache rows at a time in shared memory, which serve all of them twice,
// for scores and for sums. Some invocations share the columns of 2 x 2 scores; every
// invocation keeps the sums of pairs of latent values for all rows.
//
// spec: 0 workgroup, 1 ROWS (a multiple of 4), 2 RANK, 3 ROT, 4 TILE (even); ROWS * TILE <= 4 workgroup
// Shared memory: 4 * (TILE * (row words + 4) + ROWS * (TILE + 3) + 4 * workgroup)
// build: [KV16|KV32]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint ROWS = 4u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint ROT = 32u;
layout(constant_id = 4) const uint TILE = 4u;

READS(0, vec4, q)      // (batch, heads, RANK + ROT)
READS(1, uint, k)
WRITES(2, vec2, y)     // (batch, heads, RANK)
READS(3, uint, step)
PUSH { uint heads; float scale; uint k_base; } p;

const uint WIDTH = RANK + ROT;
const uint PAIRS = (RANK / 2u + WORKGROUP - 1u) / WORKGROUP;
const uint BLOCKS = ROWS * TILE / 4u;        // of 2 x 2 scores
const uint SPLIT = WORKGROUP / BLOCKS;       // invocations of a block
const float NEVER = -1e30;
#ifdef KV16
const uint WORDS = WIDTH / 2u;
#else
const uint WORDS = WIDTH;
#endif
const uint PITCH = WORDS + 4u;  // rows change banks

shared uint tile[TILE * PITCH];
shared vec4 partial[WORKGROUP];
shared float score[ROWS * TILE];  // of a position, all rows one after another
shared float most[ROWS], shrink[ROWS], total[ROWS];

vec2 sums[ROWS * PAIRS];

vec2 cached(uint r, uint i) {
#ifdef KV16
    return unpackHalf2x16(tile[r * PITCH + i]);
#else
    return uintBitsToFloat(uvec2(tile[r * PITCH + 2u * i], tile[r * PITCH + 2u * i + 1u]));
#endif
}

vec4 four(uint r, uint i) { return vec4(cached(r, 2u * i), cached(r, 2u * i + 1u)); }

// Scores of all rows for TILE positions; NEVER for those after the token of a row
void scores(uint row0, uint rows, uint i0, uint t) {
    uint block = t / SPLIT, r = block % (ROWS / 2u) * 2u, c = block / (ROWS / 2u) * 2u;
    vec4 sum = vec4(0.0);
    if (block < BLOCKS) {
        uint a = min(row0 + r, rows - 1u) * (WIDTH / 4u);
        uint b = min(row0 + r + 1u, rows - 1u) * (WIDTH / 4u);
        for (uint i = t % SPLIT; i < WIDTH / 4u; i += SPLIT) {
            vec4 u = q[a + i], v = q[b + i], x = four(c, i), z = four(c + 1u, i);
            sum += vec4(dot(u, x), dot(v, x), dot(u, z), dot(v, z));
        }
    }
    partial[t] = sum;
    barrier();
    for (uint e = t; e < ROWS * TILE; e += WORKGROUP) {
        uint row = e % ROWS, j = e / ROWS;
        uint at = (j / 2u * (ROWS / 2u) + row / 2u) * SPLIT;
        float all = 0.0;
        for (uint i = 0u; i < SPLIT; i++) all += partial[at + i][j % 2u * 2u + row % 2u];
        uint last = step[STEP_POS] + min(row0 + row, rows - 1u) / p.heads;
        score[e] = i0 + j <= last ? all * p.scale : NEVER;
    }
    barrier();
}

// Scores to weights, relative to the largest so far
void soften(uint t) {
    for (uint row = t; row < ROWS; row += WORKGROUP) {
        float largest = most[row];
        for (uint j = 0u; j < TILE; j++) largest = max(largest, score[j * ROWS + row]);
        shrink[row] = exp(most[row] - largest);
        most[row] = largest;
    }
    barrier();
    for (uint e = t; e < ROWS * TILE; e += WORKGROUP)
        score[e] = score[e] > 0.5 * NEVER ? exp(score[e] - most[e % ROWS]) : 0.0;
    barrier();
    for (uint row = t; row < ROWS; row += WORKGROUP) {
        float sum = 0.0;
        for (uint j = 0u; j < TILE; j++) sum += score[j * ROWS + row];
        total[row] = total[row] * shrink[row] + sum;
    }
}

void gather(uint t) {
    FLAT for (uint h = 0u; h < ROWS; h++)
        FLAT for (uint j = 0u; j < PAIRS; j++) sums[h * PAIRS + j] *= shrink[h];
    for (uint r = 0u; r < TILE; r++) {
        vec2 v[PAIRS];
        FLAT for (uint j = 0u; j < PAIRS; j++)
            v[j] = cached(r, min(t + j * WORKGROUP, RANK / 2u - 1u));
        FLAT for (uint h = 0u; h < ROWS; h++)
            FLAT for (uint j = 0u; j < PAIRS; j++) sums[h * PAIRS + j] += score[r * ROWS + h] * v[j];
    }
}

void main() {
    uint t = gl_LocalInvocationID.x, rows = step[STEP_N] * p.heads;
    // the last tokens see most positions: they come first
    uint row0 = (gl_NumWorkGroups.x - 1u - gl_WorkGroupID.x) * ROWS;
    if (step[STEP_STOP] != 0u || row0 >= rows) return;
    uint stop = step[STEP_POS] + min(row0 + ROWS - 1u, rows - 1u) / p.heads + 1u;
    for (uint h = t; h < ROWS; h += WORKGROUP) {
        most[h] = NEVER;
        total[h] = 0.0;
    }
    FLAT for (uint i = 0u; i < ROWS * PAIRS; i++) sums[i] = vec2(0.0);
    for (uint i0 = 0u; i0 < stop; i0 += TILE) {
        barrier();
        for (uint e = t; e < TILE * WORDS; e += WORKGROUP)
            tile[e / WORDS * PITCH + e % WORDS] =
                i0 + e / WORDS < stop ? k[p.k_base + i0 * WORDS + e] : 0u;
        barrier();
        scores(row0, rows, i0, t);
        soften(t);
        gather(t);
    }
    barrier();
    FLAT for (uint h = 0u; h < ROWS; h++) {
        if (row0 + h >= rows) break;
        FLAT for (uint j = 0u; j < PAIRS; j++) {
            uint i = t + j * WORKGROUP;
            if (i < RANK / 2u) y[(row0 + h) * (RANK / 2u) + i] = sums[h * PAIRS + j] / total[h];
        }
    }
}
