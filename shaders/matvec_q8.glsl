// Body of the int8 mat-vec family: a subgroup's groups of LANES lanes take ROWS rows each.
// The stem defines the epilogue: ROPE, SWIGLU, ADD or none; NORM divides by the root mean square
// whose partial sums of squares `ssq` the kernel before has left (one per 16 values).
//
// spec: 0 workgroup, 1 LANES, 2 ROWS, 3 subgroup size, 4 UNROLL (chunks of a lane in flight)

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint LANES = 8u;
layout(constant_id = 2) const uint ROWS = 2u;
layout(constant_id = 3) const uint SUBGROUP = 8u;
layout(constant_id = 4) const uint UNROLL = 1u;

#ifdef SWIGLU
const uint SUMS = 2u * ROWS;
#else
const uint SUMS = ROWS;
#endif
const uint GROUPS = WORKGROUP / LANES;

#if defined(ADD) || defined(SWIGLU)
shared float outs[GROUPS * ROWS];
#include "quant16.glsl"
#endif

#ifdef ROPE
// Rows of q are rotated in pairs and kept, rows of k rotated and v plain go into the caches.
void store_pair(uint row, float a, float b) {
    uint q_dim = p.n_head * p.head_dim, kv_dim = p.n_head_kv * p.head_dim;
    uint pos = step[STEP_POS], d = row % p.head_dim;
    if (row < q_dim + kv_dim && d < p.n_rot) {
        vec2 cs = rope[pos * (p.n_rot / 2u) + d / 2u];
        float r = a * cs.x - b * cs.y;
        b = a * cs.y + b * cs.x;
        a = r;
    }
    if (row < q_dim) {
        y[row] = a;
        y[row + 1u] = b;
        return;
    }
    bool to_v = row >= q_dim + kv_dim;
    uint at = pos * kv_dim + (row - q_dim) - (to_v ? kv_dim : 0u);
#ifdef KV16
    uint word = packHalf2x16(vec2(a, b));
    if (to_v) v[p.v_base + at / 2u] = word;
    else k[p.k_base + at / 2u] = word;
#else
    uvec2 pair = floatBitsToUint(vec2(a, b));
    if (to_v) { v[p.v_base + at] = pair.x; v[p.v_base + at + 1u] = pair.y; }
    else { k[p.k_base + at] = pair.x; k[p.k_base + at + 1u] = pair.y; }
#endif
}
#endif

void main() {
    // the stop flag and the norm are needed at the end only: their loads overlap the product
    bool stopped = step[STEP_STOP] != 0u;
    uint lane = gl_SubgroupInvocationID % LANES;
    uint group = gl_SubgroupID * (SUBGROUP / LANES) + gl_SubgroupInvocationID / LANES;
    uint wg = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint wg_row = wg * GROUPS * ROWS, row0 = wg_row + group * ROWS;
    uint chunks = p.cols / 32u;
#ifdef NORM
    float squares = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < p.cols / 16u; i += SUBGROUP) squares += ssq[i];
#endif
    float acc[SUMS];
    FLAT for (uint i = 0u; i < SUMS; i++) acc[i] = 0.0;
    for (uint c0 = lane; c0 < chunks + lane; c0 += LANES * UNROLL) {
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint c = min(c0 + u * LANES, chunks - 1u);
            float inside = c0 + u * LANES < chunks ? 1.0 : 0.0;
            uint ga = chunk_a(c) / 16u, gb = chunk_b(c) / 16u;
            uvec4 xa = xq[ga], xb = xq[gb];
            vec2 za = xs[ga] * inside, zb = xs[gb] * inside;
            FLAT for (uint r = 0u; r < ROWS; r++) {
                uint row = min(row0 + r, p.rows - 1u);
                acc[r] += chunk_dot_q8(row * chunks + c, xa, xb, za, zb);
#ifdef SWIGLU
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
#if defined(ROPE)
    if (lane != 0u) return;
    FLAT for (uint r = 0u; r < ROWS; r += 2u)
        if (row0 + r < p.rows)
            store_pair(p.y_off + row0 + r, acc[r] * norm, acc[r + 1u] * norm);
#elif defined(SWIGLU)
    if (lane == 0u)
        FLAT for (uint r = 0u; r < ROWS; r++) {
            float gate = acc[r] * norm;
            outs[group * ROWS + r] = gate / (1.0 + exp(-gate)) * (acc[ROWS + r] * norm);
        }
    barrier();
    uint count = min(p.rows - wg_row, GROUPS * ROWS);
    quantize_outs(wg_row, count, gl_LocalInvocationID.x, WORKGROUP);
#elif defined(ADD)
    if (lane == 0u)
        FLAT for (uint r = 0u; r < ROWS; r++) {
            if (row0 + r >= p.rows) break;
            float sum = y[row0 + r] + acc[r];
            y[row0 + r] = sum;
            outs[group * ROWS + r] = sum;
        }
    barrier();
    uint count = min(p.rows - wg_row, GROUPS * ROWS), t = gl_LocalInvocationID.x;
    float own = t < count ? outs[t] : 0.0;
    for (uint i = t; i < count / 16u; i += WORKGROUP) {
        float sum = 0.0;
        for (uint j = 0u; j < 16u; j++) sum += outs[i * 16u + j] * outs[i * 16u + j];
        ssq[wg_row / 16u + i] = sum;
    }
    barrier();
    if (t < count) outs[t] = own * uintBitsToFloat(g[p.g_p0 + wg_row + t]);
    barrier();
    quantize_outs(wg_row, count, t, WORKGROUP);
#else
    if (lane != 0u) return;
    FLAT for (uint r = 0u; r < ROWS; r++)
        if (row0 + r < p.rows) y[p.y_off + row0 + r] = acc[r] * norm;
#endif
}
