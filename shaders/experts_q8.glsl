// Body of the int8 products of a token's experts; lanes and rows: rows_q8.glsl.
// SWIGLU: gate and up of one slot of the route per gl_WorkGroupID.y, from the token's vector; w
// holds the gates of `experts` experts, then their ups. DOWN: the weighted sum over all slots, from
// their vectors: the columns of all slots are one long row. Weights hold the experts from `first`
// on; slots of other experts are left to other dispatches. BIAS: an expert's rows of `b` are added.
//
// spec: 0 … 5 as rows_q8.glsl, 6 SLOTS, 7 CHUNKS (32 columns)

layout(constant_id = 6) const uint SLOTS = 2u;
layout(constant_id = 7) const uint CHUNKS = 1u;

#ifdef SWIGLU
const uint MATRICES = 2u;
#else
const uint MATRICES = 1u;
#endif
#include "rows_q8.glsl"

const uint UNITS = CHUNKS / UNIT;

shared float outs[SUBGROUP >= 16u ? 1u : WG_ROWS];
#include "quant16.glsl"
#include "experts_gate.glsl"
#ifdef DOWN
#include "experts_slots.glsl"
#elif defined(CHOOSE)
#include "experts_choice.glsl"
#endif

void main() {
    // what is needed at the end only is loaded here, so that its latency overlaps the product's
    bool stopped = step[STEP_STOP] != 0u;
    uint lane = gl_SubgroupInvocationID % LANES;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    uint part = gl_SubgroupID % KSPLIT;
    uint group = gl_SubgroupID / KSPLIT * PER_SUBGROUP + gl_SubgroupInvocationID / LANES;
    uint wg_row = gl_WorkGroupID.x * WG_ROWS, row0 = wg_row + group * ROWS;
    uint count = min(p.rows - min(wg_row, p.rows), WG_ROWS);
    // subgroups without values of their own would only take turns from those that load weights
    bool done = SUBGROUP >= 16u && gl_SubgroupID * SUBGROUP >= count;
#ifdef SWIGLU
    uint slot = gl_WorkGroupID.y;
    const uint total = UNITS;
#ifndef CHOOSE
    float chosen = route[slot].x;
#endif
    float squares = 0.0;
    if (!done)
        for (uint i = gl_SubgroupInvocationID; i < 2u * CHUNKS; i += SUBGROUP) squares += ssq[i];
#ifdef CHOOSE
    float chosen = chosen_of(slot, stopped);  // waits, so everything else is on its way
#endif
    uint expert = uint(max(chosen, 0.0)) - p.first;
    if (chosen < 0.0 || expert >= p.experts) return;
#else
    Slots slots = find_slots(t);
    float own = t < count ? y[wg_row + t] : 0.0;
    float gain = t < count ? uintBitsToFloat(g[p.g_p0 + wg_row + t]) : 0.0;
    uint total = slots.found * UNITS;
#endif
    clear_sums();
    for (uint c0 = part * LANES; c0 < total; c0 += STRIDE * UNROLL) {
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint at = min(c0 + u * STRIDE + lane, total - 1u);
            float share = c0 + u * STRIDE + lane < total ? 1.0 : 0.0;
#ifdef SWIGLU
            uint c = at, x0 = 0u, w0 = expert * p.rows;
#else
            uint s = at / UNITS, c = at - s * UNITS;
            uint x0 = slot_at(slots, s) * (2u * CHUNKS), w0 = expert_at(slots, s) * p.rows;
            share *= share_at(slots, s);
#endif
            ADD_UNIT(x0, c, share, w0 + row0, w0 + p.rows - 1u, p.experts * p.rows, UNITS)
        }
    }
    if (stopped) return;
    join_lanes(lane, group, part);
    if (done) return;
#ifdef SWIGLU
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) squares += subgroupShuffleXor(squares, d);
    float norm = inversesqrt(squares / float(p.cols) + p.eps), value = 0.0;
    if (t < count) {
        float gate = row_sum(t, 0u) * norm, up = row_sum(t, 1u) * norm;
        value = gated(gate, up, expert * p.rows + wg_row + t);
    }
    quantize_values(slot * p.rows + wg_row, count, t, value);
#else
    if (t < count) own += row_sum(t, 0u);
#ifdef BIAS
    for (uint s = 0u; s < slots.found; s++) {
        uint row = expert_at(slots, s) * p.rows + min(wg_row + t, p.rows - 1u);
        own += share_at(slots, s) * uintBitsToFloat(b[p.b_p0 + row]);
    }
#endif
    if (t < count) y[wg_row + t] = own;
    store_squares(wg_row, count, t, own);
    quantize_values(wg_row, count, t, own * gain);
#endif
}
