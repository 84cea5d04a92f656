// Body of the int8 mat-vec family. Lanes and rows: rows_q8.glsl.
// The stem defines the epilogue: ROPE, GATED, ADD, COMPRESS or none; NORM divides by the root mean square
// whose partial sums of squares `ssq` the kernel before has left (one per 16 values).
// GATED: w holds the rows of gate, then those of up.

#ifdef GATED
const uint MATRICES = 2u;
#else
const uint MATRICES = 1u;
#endif
#include "rows_q8.glsl"
#include "gate.glsl"

#if defined(ADD) || defined(GATED) || defined(COMPRESS)
shared float outs[SUBGROUP >= 16u ? 1u : WG_ROWS];
#include "quant16.glsl"
#endif

#ifdef ROPE
#include "cache.glsl"
#include "rope_pair.glsl"
#endif

#ifdef NORM
const uint EARLY = 8u;  // sums of squares of a lane: of 4096 values where 32 lanes share them
#endif

void main() {
    // what is needed at the end only is loaded here, so that its latency overlaps the product's
    bool stopped = step[STEP_STOP] != 0u;
    uint lane = gl_SubgroupInvocationID % LANES;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    uint part = gl_SubgroupID % KSPLIT;
    uint group = gl_SubgroupID / KSPLIT * PER_SUBGROUP + gl_SubgroupInvocationID / LANES;
    uint wg = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint wg_row = wg * WG_ROWS, row0 = wg_row + group * ROWS;
    uint units = p.cols / (32u * UNIT), count = min(p.rows - min(wg_row, p.rows), WG_ROWS);
#if defined(ROPE)
    uint pos = step[STEP_POS];
    vec2 cs = 2u * t < count ? turn(p.y_off + wg_row + 2u * t, pos) : vec2(1.0, 0.0);
#elif defined(ADD)
    float own = t < count ? y[wg_row + t] : 0.0;
    float gain = t < count ? uintBitsToFloat(g[p.g_p0 + wg_row + t]) : 0.0;
#elif defined(COMPRESS)
    uint to = p.y_off + wg_row, few = min(count, p.width - min(to, p.width));
    float gain = t < few ? uintBitsToFloat(g[p.g_p0 + to + t]) : 0.0;
#endif
#ifdef NORM
    float squares = 0.0, early[EARLY];  // loads that are on their way at once
    uint groups = p.cols / 16u;
    FLAT for (uint i = 0u; i < EARLY; i++)
        early[i] = ssq[min(gl_SubgroupInvocationID + i * SUBGROUP, groups - 1u)];
    for (uint i = gl_SubgroupInvocationID + EARLY * SUBGROUP; i < groups; i += SUBGROUP)
        squares += ssq[i];
    FLAT for (uint i = 0u; i < EARLY; i++)
        squares += gl_SubgroupInvocationID + i * SUBGROUP < groups ? early[i] : 0.0;
#endif
    clear_sums();
    for (uint c0 = part * LANES + lane; c0 < units; c0 += STRIDE * UNROLL) {
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint c = min(c0 + u * STRIDE, units - 1u);
            float inside = c0 + u * STRIDE < units ? 1.0 : 0.0;
            ADD_UNIT(0u, c, inside, row0, p.rows - 1u, p.rows, units)
        }
    }
    if (stopped) return;
#ifdef NORM
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) squares += subgroupShuffleXor(squares, d);
    float norm = inversesqrt(squares / float(p.cols) + p.eps);
#else
    const float norm = 1.0;
#endif
    join_lanes(lane, group, part);
#if defined(ROPE)
    if (2u * t < count)
        store_pair(p.y_off + wg_row + 2u * t, pos, cs, row_sum(2u * t, 0u) * norm,
                   row_sum(2u * t + 1u, 0u) * norm);
#elif defined(GATED)
    if (SUBGROUP >= 16u && gl_SubgroupID * SUBGROUP >= count) return;
    float gated = 0.0;
    if (t < count) {
        float gate = row_sum(t, 0u) * norm;
        gated = activated(gate) * (row_sum(t, 1u) * norm);
    }
    quantize_values(wg_row, count, t, gated);
#elif defined(ADD)
    // the others would only take turns from workgroups that still load weights
    if (SUBGROUP >= 16u && gl_SubgroupID * SUBGROUP >= count) return;
    if (t < count) {
        own += row_sum(t, 0u);
        y[wg_row + t] = own;
    }
    store_squares(wg_row, count, t, own);
    quantize_values(wg_row, count, t, own * gain);
#elif defined(COMPRESS)
    if (SUBGROUP >= 16u && gl_SubgroupID * SUBGROUP >= count) return;
    float own = t < count ? row_sum(t, 0u) * norm : 0.0;
    if (t < count) y[to + t] = own;
    store_squares(to, few, t, own);
    quantize_values(to, few, t, own * gain);
#else
    for (uint r = t; r < count; r += WORKGROUP)
        y[p.y_off + wg_row + r] = row_sum(r, 0u) * norm;
#endif
}
