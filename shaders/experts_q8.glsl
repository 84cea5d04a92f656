// Body of the int8 products of a token's experts; lanes and rows as in matvec_q8.glsl.
// SWIGLU: gate and up of one slot of the route per gl_WorkGroupID.y, from the token's vector; w
// holds the gates of `experts` experts, then their ups. DOWN: the weighted sum over all slots, from
// their vectors: the columns of all slots are one long row. Weights hold the experts from `first`
// on; slots of other experts are left to other dispatches. BIAS: an expert's rows of `b` are added.
//
// spec: 0 workgroup, 1 LANES, 2 ROWS, 3 subgroup size, 4 UNROLL (chunks of a lane in flight),
// 5 KSPLIT (a power of two, at most the number of subgroups), 6 SLOTS, 7 CHUNKS (32 columns)

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint LANES = 8u;
layout(constant_id = 2) const uint ROWS = 2u;
layout(constant_id = 3) const uint SUBGROUP = 8u;
layout(constant_id = 4) const uint UNROLL = 1u;
layout(constant_id = 5) const uint KSPLIT = 1u;
layout(constant_id = 6) const uint SLOTS = 2u;
layout(constant_id = 7) const uint CHUNKS = 1u;

#ifdef SWIGLU
const uint SUMS = 2u * ROWS;
#else
const uint SUMS = ROWS;
#endif
const uint PER_SUBGROUP = SUBGROUP / LANES, STRIDE = LANES * KSPLIT;
const uint GROUPS = WORKGROUP / SUBGROUP / KSPLIT * PER_SUBGROUP;
const uint WG_ROWS = GROUPS * ROWS;

shared float partial[GROUPS * SUMS * KSPLIT];
shared float outs[SUBGROUP >= 16u ? 1u : WG_ROWS];
#include "quant16.glsl"
#include "experts_gate.glsl"
#ifdef DOWN
#include "experts_slots.glsl"
#endif

float row_sum(uint row, uint matrix) {
    uint at = (row / ROWS * SUMS + matrix * ROWS + row % ROWS) * KSPLIT;
    float sum = 0.0;
    for (uint i = 0u; i < KSPLIT; i++) sum += partial[at + i];
    return sum;
}

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
    const uint total = CHUNKS;
    float chosen = route[slot].x, squares = 0.0;
    if (!done)
        for (uint i = gl_SubgroupInvocationID; i < 2u * CHUNKS; i += SUBGROUP) squares += ssq[i];
    uint expert = uint(max(chosen, 0.0)) - p.first;
    if (chosen < 0.0 || expert >= p.experts) return;
#else
    Slots slots = find_slots(t);
    float own = t < count ? y[wg_row + t] : 0.0;
    float gain = t < count ? uintBitsToFloat(g[p.g_p0 + wg_row + t]) : 0.0;
    uint total = slots.found * CHUNKS;
#endif
    float acc[SUMS];
    FLAT for (uint i = 0u; i < SUMS; i++) acc[i] = 0.0;
    for (uint c0 = part * LANES; c0 < total; c0 += STRIDE * UNROLL) {
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint at = min(c0 + u * STRIDE + lane, total - 1u);
            float part_of = c0 + u * STRIDE + lane < total ? 1.0 : 0.0;
#ifdef SWIGLU
            uint c = at, x0 = 0u, w0 = expert * p.rows;
#else
            uint s = at / CHUNKS, c = at - s * CHUNKS;
            uint x0 = slot_at(slots, s) * (2u * CHUNKS), w0 = expert_at(slots, s) * p.rows;
            part_of *= share_at(slots, s);
#endif
            uint ga = x0 + chunk_a(c) / 16u, gb = x0 + chunk_b(c) / 16u;
            uvec4 xa = xq[ga], xb = xq[gb];
            vec2 za = xs[ga] * part_of, zb = xs[gb] * part_of;
            FLAT for (uint r = 0u; r < ROWS; r++) {
                uint row = w0 + min(row0 + r, p.rows - 1u);
                acc[r] += chunk_dot_q8(row * CHUNKS + c, xa, xb, za, zb);
#ifdef SWIGLU
                acc[ROWS + r] +=
                    chunk_dot_q8((p.experts * p.rows + row) * CHUNKS + c, xa, xb, za, zb);
#endif
            }
        }
    }
    if (stopped) return;
    for (uint d = LANES / 2u; d > 0u; d /= 2u)
        FLAT for (uint i = 0u; i < SUMS; i++) acc[i] += subgroupShuffleXor(acc[i], d);
    if (lane == 0u)
        FLAT for (uint i = 0u; i < SUMS; i++) partial[(group * SUMS + i) * KSPLIT + part] = acc[i];
    barrier();
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
