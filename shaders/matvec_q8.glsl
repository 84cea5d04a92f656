// Body of the int8 mat-vec family: a group of LANES lanes takes ROWS rows, and KSPLIT groups of
// different subgroups share the columns of the same rows. Several rows per group reuse the
// activations that a lane loads; several groups per row keep enough loads in flight.
// The stem defines the epilogue: ROPE, GATED, ADD, COMPRESS or none; NORM divides by the root mean square
// whose partial sums of squares `ssq` the kernel before has left (one per 16 values).
//
// spec: 0 workgroup, 1 LANES, 2 ROWS, 3 subgroup size, 4 UNROLL (chunks of a lane in flight),
// 5 KSPLIT (a power of two, at most the number of subgroups)

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint LANES = 8u;
layout(constant_id = 2) const uint ROWS = 2u;
layout(constant_id = 3) const uint SUBGROUP = 8u;
layout(constant_id = 4) const uint UNROLL = 1u;
layout(constant_id = 5) const uint KSPLIT = 1u;

#include "gate.glsl"

#ifdef GATED
const uint SUMS = 2u * ROWS;
#else
const uint SUMS = ROWS;
#endif
const uint PER_SUBGROUP = SUBGROUP / LANES;
const uint GROUPS = WORKGROUP / SUBGROUP / KSPLIT * PER_SUBGROUP;
const uint WG_ROWS = GROUPS * ROWS;

shared float partial[GROUPS * SUMS * KSPLIT];

#if defined(ADD) || defined(GATED) || defined(COMPRESS)
shared float outs[SUBGROUP >= 16u ? 1u : WG_ROWS];
#include "quant16.glsl"
#endif

// Sum number i (row i of the workgroup; GATED: rows of gate, then of up) over the column parts
float row_sum(uint row, uint matrix) {
    uint at = (row / ROWS * SUMS + matrix * ROWS + row % ROWS) * KSPLIT;
    float sum = 0.0;
    for (uint i = 0u; i < KSPLIT; i++) sum += partial[at + i];
    return sum;
}

#ifdef ROPE
#include "cache.glsl"

// Rows of q are rotated in pairs and kept, rows of k rotated and v plain go into the caches.
vec2 turn(uint row, uint pos) {
    uint d = row % p.head_dim;
    bool turns = row < (p.n_head + p.n_head_kv) * p.head_dim && d < p.n_rot;
    return turns ? rope[pos * (p.n_rot / 2u) + d / 2u] : vec2(1.0, 0.0);
}

void store_pair(uint row, uint pos, vec2 cs, float x0, float x1) {
    uint q_dim = p.n_head * p.head_dim, kv_dim = p.n_head_kv * p.head_dim;
    float a = x0 * cs.x - x1 * cs.y, b = x0 * cs.y + x1 * cs.x;
    if (row < q_dim) {
        y[row] = a;
        y[row + 1u] = b;
        return;
    }
    bool to_v = row >= q_dim + kv_dim;
    uint at = key_row(pos) * kv_dim + (row - q_dim) - (to_v ? kv_dim : 0u);
    store_cached(to_v, at, a, b);
}
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
    uint chunks = p.cols / 32u, count = min(p.rows - min(wg_row, p.rows), WG_ROWS);
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
    float squares = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < p.cols / 16u; i += SUBGROUP) squares += ssq[i];
#endif
    float acc[SUMS];
    FLAT for (uint i = 0u; i < SUMS; i++) acc[i] = 0.0;
    uint first = part * LANES + lane, stride = LANES * KSPLIT;
    for (uint c0 = first; c0 < chunks; c0 += stride * UNROLL) {
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint c = min(c0 + u * stride, chunks - 1u);
            float inside = c0 + u * stride < chunks ? 1.0 : 0.0;
            uint ga = chunk_a(c) / 16u, gb = chunk_b(c) / 16u;
            uvec4 xa = xq[ga], xb = xq[gb];
            vec2 za = xs[ga] * inside, zb = xs[gb] * inside;
            FLAT for (uint r = 0u; r < ROWS; r++) {
                uint row = min(row0 + r, p.rows - 1u);
                acc[r] += chunk_dot_q8(row * chunks + c, xa, xb, za, zb);
#ifdef GATED
                acc[ROWS + r] += chunk_dot_q8((p.rows + row) * chunks + c, xa, xb, za, zb);
#endif
            }
        }
    }
    if (stopped) return;
    for (uint d = LANES / 2u; d > 0u; d /= 2u)
        FLAT for (uint i = 0u; i < SUMS; i++) acc[i] += subgroupShuffleXor(acc[i], d);
#ifdef NORM
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) squares += subgroupShuffleXor(squares, d);
    float norm = inversesqrt(squares / float(p.cols) + p.eps);
#else
    const float norm = 1.0;
#endif
    if (lane == 0u)
        FLAT for (uint i = 0u; i < SUMS; i++) partial[(group * SUMS + i) * KSPLIT + part] = acc[i];
    barrier();
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
