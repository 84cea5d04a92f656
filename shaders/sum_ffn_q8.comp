#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0]
// A narrow feed-forward network, a slice of its inner values per workgroup: the residual stream
// from its parts (narrow_sum.glsl), norm, SLICE rows of gate and up, the gated values in int8,
// times the slice's columns of the down projection. Row 0 of y becomes the sum of the parts, row
// 1 + i the product of slice i: parts again. All weights are loaded before anything waits.
#define NORM 1
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)
WEIGHT(1, d)
WEIGHT(2, g)
READS(3, vec4, x)
WRITES(4, float, y)
READS(5, uint, step)
PUSH { uint rows; float eps; PLANES(g); PLANES(w); PLANES(d); } p;

// behind those of narrow_sum.glsl
layout(constant_id = 5) const uint SLICE = 32u;  // a multiple of 32
// lanes of a row of gate and its row of up, such rows of a group of lanes; those of down
layout(constant_id = 6) const uint UP_LANES = 2u;
layout(constant_id = 7) const uint UP_ROWS = 1u;
layout(constant_id = 8) const uint DOWN_LANES = 1u;
layout(constant_id = 9) const uint DOWN_ROWS = 1u;

#define WIDTH (COLS + SLICE)
#include "narrow_sum.glsl"
#include "narrow_rows.glsl"
#include "gate.glsl"

const uint UP_COUNT = COLS / 32u, UP_OWN = (UP_COUNT + UP_LANES - 1u) / UP_LANES;
const uint DOWN_COUNT = SLICE / 32u, DOWN_OWN = (DOWN_COUNT + DOWN_LANES - 1u) / DOWN_LANES;
const uint UP_GROUPS = WORKGROUP / UP_LANES, DOWN_GROUPS = WORKGROUP / DOWN_LANES;

shared float gated[SLICE];

void keep(uint n, vec4 sum) {
    FLAT for (uint i = 0u; i < 4u; i++) y[4u * n + i] = sum[i];
}

// As chunk_fetch, from d
Chunk down_fetch(uint g) {
    Chunk c;
    FLAT for (uint k = 0u; k < RAW; k++) c.q[k] = d4[p.d_p0 / 4u + g * RAW + k];
#if defined(Q4_0) || defined(Q8_0)
    c.s.x = d[p.d_p1 + (g >> 1)];
#elif defined(Q4_1)
    c.s.x = d[p.d_p1 + g];
#elif defined(Q5_0)
    c.s.xy = uvec2(d[p.d_p2 + (g >> 1)], d[p.d_p1 + g]);
#else
    c.s.xy = uvec2(d[p.d_p2 + g], d[p.d_p1 + g]);
#endif
    return c;
}

#define GATE_CHUNK (slice * SLICE + min(t / UP_LANES + r * UP_GROUPS, SLICE - 1u)) * UP_COUNT
#define UP_CHUNK p.rows * UP_COUNT + GATE_CHUNK
#define DOWN_CHUNK \
    min(t / DOWN_LANES + r * DOWN_GROUPS, COLS - 1u) * (p.rows / 32u) + slice * DOWN_COUNT

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID, slice = gl_WorkGroupID.x;
    Chunk gates[UP_ROWS * UP_OWN], ups[UP_ROWS * UP_OWN], downs[DOWN_ROWS * DOWN_OWN];
    LOAD_ROWS(gates, chunk_fetch, UP_ROWS, UP_OWN, UP_COUNT, UP_LANES, GATE_CHUNK)
    LOAD_ROWS(ups, chunk_fetch, UP_ROWS, UP_OWN, UP_COUNT, UP_LANES, UP_CHUNK)
    LOAD_ROWS(downs, down_fetch, DOWN_ROWS, DOWN_OWN, DOWN_COUNT, DOWN_LANES, DOWN_CHUNK)
    if (!sum_parts(t, slice == 0u, stopped)) return;
    float gate[UP_ROWS], up[UP_ROWS], sum[DOWN_ROWS];
    MULTIPLY_ROWS(gate, gates, UP_ROWS, UP_OWN, UP_COUNT, UP_LANES, GATE_CHUNK, 0u)
    MULTIPLY_ROWS(up, ups, UP_ROWS, UP_OWN, UP_COUNT, UP_LANES, UP_CHUNK, 0u)
    float norm = inverse_rms();
    FLAT for (uint r = 0u; r < UP_ROWS; r++) {
        uint row = t / UP_LANES + r * UP_GROUPS;
        if (t % UP_LANES == 0u && row < SLICE)
            gated[row] = activated(gate[r] * norm) * (up[r] * norm);
    }
    barrier();
    for (uint n = t; n < SLICE / 4u; n += WORKGROUP)
        quantize_x(FOURS + n, vec4(gated[4u * n], gated[4u * n + 1u], gated[4u * n + 2u],
                                   gated[4u * n + 3u]), true);
    barrier();
    MULTIPLY_ROWS(sum, downs, DOWN_ROWS, DOWN_OWN, DOWN_COUNT, DOWN_LANES, DOWN_CHUNK, COLS / 16u)
    FLAT for (uint r = 0u; r < DOWN_ROWS; r++) {
        uint row = t / DOWN_LANES + r * DOWN_GROUPS;
        if (t % DOWN_LANES == 0u && row < COLS) y[(1u + slice) * COLS + row] = sum[r];
    }
}
