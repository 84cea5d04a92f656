// Body of the int8 products of a token's experts; lanes and rows as in matvec_q8.glsl.
// SWIGLU: gate and up of one slot of the route per gl_WorkGroupID.y, from the token's vector; w
// holds the gates of `experts` experts, then their ups. DOWN: the weighted sum over all slots, from
// their vectors: the columns of all slots are one long row. Weights hold the experts from `first`
// on; slots of other experts are left to other dispatches. BIAS: an expert's rows of `b` are added.
//
// spec: 0 workgroup, 1 LANES, 2 ROWS, 3 subgroup size, 4 UNROLL (chunks of a lane in flight),
// 5 KSPLIT (a power of two, at most the number of subgroups), 6 SLOTS

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint LANES = 8u;
layout(constant_id = 2) const uint ROWS = 2u;
layout(constant_id = 3) const uint SUBGROUP = 8u;
layout(constant_id = 4) const uint UNROLL = 1u;
layout(constant_id = 5) const uint KSPLIT = 1u;
layout(constant_id = 6) const uint SLOTS = 2u;

#ifdef SWIGLU
const uint SUMS = 2u * ROWS;
#else
const uint SUMS = ROWS;
shared uint slot_of[SLOTS], expert_of[SLOTS], found;
shared float share[SLOTS];
shared vec2 choice[SLOTS];
#endif
const uint PER_SUBGROUP = SUBGROUP / LANES;
const uint GROUPS = WORKGROUP / SUBGROUP / KSPLIT * PER_SUBGROUP;
const uint WG_ROWS = GROUPS * ROWS;

shared float partial[GROUPS * SUMS * KSPLIT];
shared float outs[SUBGROUP >= 16u ? 1u : WG_ROWS];
#include "quant16.glsl"
#include "experts_gate.glsl"

float row_sum(uint row, uint matrix) {
    uint at = (row / ROWS * SUMS + matrix * ROWS + row % ROWS) * KSPLIT;
    float sum = 0.0;
    for (uint i = 0u; i < KSPLIT; i++) sum += partial[at + i];
    return sum;
}

#ifdef DOWN
// The slots whose experts these weights hold; every slot is loaded by an invocation of its own
void find_slots(uint t) {
    for (uint s = t; s < SLOTS; s += WORKGROUP) choice[s] = route[s];
    barrier();
    if (t == 0u) {
        uint n = 0u;
        for (uint s = 0u; s < SLOTS; s++) {
            uint expert = uint(max(choice[s].x, 0.0)) - p.first;
            if (choice[s].x < 0.0 || expert >= p.experts) continue;
            slot_of[n] = s;
            expert_of[n] = expert;
            share[n] = choice[s].y;
            n++;
        }
        found = n;
    }
    barrier();
}
#endif

void main() {
    uint lane = gl_SubgroupInvocationID % LANES;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    uint part = gl_SubgroupID % KSPLIT;
    uint group = gl_SubgroupID / KSPLIT * PER_SUBGROUP + gl_SubgroupInvocationID / LANES;
    uint wg_row = gl_WorkGroupID.x * WG_ROWS, row0 = wg_row + group * ROWS;
    uint chunks = p.cols / 32u, count = min(p.rows - min(wg_row, p.rows), WG_ROWS);
    if (step[STEP_STOP] != 0u) return;
#ifdef SWIGLU
    uint slot = gl_WorkGroupID.y, total = chunks;
    float chosen = route[slot].x;
    uint expert = uint(max(chosen, 0.0)) - p.first;
    if (chosen < 0.0 || expert >= p.experts) return;
    float squares = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < p.cols / 16u; i += SUBGROUP) squares += ssq[i];
#else
    float own = t < count ? y[wg_row + t] : 0.0;
    float gain = t < count ? uintBitsToFloat(g[p.g_p0 + wg_row + t]) : 0.0;
    find_slots(t);
    uint total = found * chunks;
#endif
    float acc[SUMS];
    FLAT for (uint i = 0u; i < SUMS; i++) acc[i] = 0.0;
    uint first = part * LANES + lane, stride = LANES * KSPLIT;
    for (uint c0 = first; c0 < total; c0 += stride * UNROLL) {
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint at = min(c0 + u * stride, total - 1u);
            float part_of = c0 + u * stride < total ? 1.0 : 0.0;
#ifdef SWIGLU
            uint c = at, x0 = 0u, w0 = expert * p.rows;
#else
            uint s = at / chunks, c = at - s * chunks;
            uint x0 = slot_of[s] * (p.cols / 16u), w0 = expert_of[s] * p.rows;
            part_of *= share[s];
#endif
            uint ga = x0 + chunk_a(c) / 16u, gb = x0 + chunk_b(c) / 16u;
            uvec4 xa = xq[ga], xb = xq[gb];
            vec2 za = xs[ga] * part_of, zb = xs[gb] * part_of;
            FLAT for (uint r = 0u; r < ROWS; r++) {
                uint row = w0 + min(row0 + r, p.rows - 1u);
                acc[r] += chunk_dot_q8(row * chunks + c, xa, xb, za, zb);
#ifdef SWIGLU
                acc[ROWS + r] +=
                    chunk_dot_q8((p.experts * p.rows + row) * chunks + c, xa, xb, za, zb);
#endif
            }
        }
    }
    for (uint d = LANES / 2u; d > 0u; d /= 2u)
        FLAT for (uint i = 0u; i < SUMS; i++) acc[i] += subgroupShuffleXor(acc[i], d);
#ifdef SWIGLU
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) squares += subgroupShuffleXor(squares, d);
    float norm = inversesqrt(squares / float(p.cols) + p.eps);
#endif
    if (lane == 0u)
        FLAT for (uint i = 0u; i < SUMS; i++) partial[(group * SUMS + i) * KSPLIT + part] = acc[i];
    barrier();
#ifdef SWIGLU
    float value = 0.0;
    if (t < count) {
        float gate = row_sum(t, 0u) * norm, up = row_sum(t, 1u) * norm;
        value = gated(gate, up, expert * p.rows + wg_row + t);
    }
    quantize_values(slot * p.rows + wg_row, count, t, value);
#else
    if (t < count) {
        own += row_sum(t, 0u);
#ifdef BIAS
        for (uint s = 0u; s < found; s++)
            own += share[s] * uintBitsToFloat(b[p.b_p0 + expert_of[s] * p.rows + wg_row + t]);
#endif
        y[wg_row + t] = own;
    }
    store_squares(wg_row, count, t, own);
    quantize_values(wg_row, count, t, own * gain);
#endif
}
