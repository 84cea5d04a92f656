// Body of mla_expand_q8: PARTS workgroups share the rows of a head; each joins the splits anew,
// which is cheaper than waiting for the last of them. Weights are loaded first of all.
//
// spec: 0 workgroup, 1 PARTS, 2 RANK, 3 LANES (per row), 4 ROWS (of LANES lanes), 5 subgroup size,
// 7 SPLITS
// Shared memory: 4 * (RANK + RANK / 4 + RANK / 8 + SPLITS + workgroup / LANES * ROWS) bytes.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint PARTS = 1u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint LANES = 2u;
layout(constant_id = 4) const uint ROWS = 1u;
layout(constant_id = 5) const uint SUBGROUP = 8u;
layout(constant_id = 7) const uint SPLITS = 1u;

const uint AHEAD = 16u;  // splits on their way at once
const uint STRIDE = RANK / 2u + 1u;  // pairs of a split: sums, then largest score and total
const uint PAIRS = (RANK / 2u + WORKGROUP - 1u) / WORKGROUP;
const uint CHUNKS = RANK / 32u, OWN = (CHUNKS + LANES - 1u) / LANES;
const uint WG_ROWS = WORKGROUP / LANES * ROWS;

shared float x[RANK], factor[SPLITS], sums[WG_ROWS];
shared uvec4 xq[RANK / 16u];
shared vec2 xs[RANK / 16u];
shared float outs[SUBGROUP >= 16u ? 1u : WG_ROWS];
#include "quant16.glsl"

// What the sums of each split are worth, by the first subgroup
void weigh_splits(uint base, uint used) {
    float most = -1e30, total = 0.0;
    for (uint s = gl_SubgroupInvocationID; s < used; s += SUBGROUP)
        most = max(most, part[base + s * STRIDE + RANK / 2u].x);
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) most = max(most, subgroupShuffleXor(most, d));
    for (uint s = gl_SubgroupInvocationID; s < used; s += SUBGROUP) {
        vec2 state = part[base + s * STRIDE + RANK / 2u];
        factor[s] = exp(state.x - most);
        total += state.y * factor[s];
    }
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) total += subgroupShuffleXor(total, d);
    for (uint s = gl_SubgroupInvocationID; s < used; s += SUBGROUP) factor[s] /= total;
}

#define LOAD_SPLITS(v, s0) \
    FLAT for (uint i = 0u; i < PAIRS; i++) \
        FLAT for (uint j = 0u; j < AHEAD; j++) \
            v[i * AHEAD + j] = part[base + min((s0) + j, used - 1u) * STRIDE \
                + min(t + i * WORKGROUP, RANK / 2u - 1u)];

// x[] in int8, four values an invocation
void quantize_x(uint t) {
    for (uint e = t; e < RANK / 4u; e += WORKGROUP) {
        uint from = e / 4u * 16u;
        float most = 0.0, sum = 0.0;
        FLAT for (uint j = 0u; j < 16u; j++) most = max(most, abs(x[from + j]));
        float inverse = most > 0.0 ? 127.0 / most : 0.0;
        uint word = 0u;
        FLAT for (uint j = 0u; j < 4u; j++)
            word |= packed_byte(roundEven(x[4u * e + j] * inverse), j);
        xq[e / 4u][e & 3u] = word;
        if ((e & 3u) != 0u) continue;
        FLAT for (uint j = 0u; j < 16u; j++) sum += roundEven(x[from + j] * inverse);
        xs[e / 4u] = vec2(most / 127.0, most / 127.0 * sum);
    }
}

// As chunk_dot_q8, of a chunk that is there already
float dot_of(uvec4 a, uvec4 b, vec4 s, uint c) {
    uint ga = chunk_a(c) / 16u, gb = chunk_b(c) / 16u;
    vec2 za = xs[ga], zb = xs[gb];
    float da = float(dot16(a, xq[ga])) * za.x - QUANT_OFFSET * za.y;
    float db = float(dot16(b, xq[gb])) * zb.x - OFFSET_B * zb.y;
#if !defined(MINIMA) && !defined(SCALES_16)
    return s.x * (da + db);
#elif defined(Q4_1) || defined(Q5_1)
    return s.x * (da + db) + s.y * (za.y + zb.y);
#else
    return s.x * da + s.y * za.y + s.z * db + s.w * zb.y;
#endif
}

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID, lane = t % LANES;
    uint head = gl_WorkGroupID.x / PARTS, first = gl_WorkGroupID.x % PARTS * WG_ROWS;
    uint len = length_seen(), per = split_length(len), used = (len + per - 1u) / per;
    uint base = head * p.splits * STRIDE, count = min(p.rows - first, WG_ROWS);
    uvec4 a[ROWS * OWN], b[ROWS * OWN];
    vec4 scales[ROWS * OWN];
    vec2 v[PAIRS * AHEAD], latent[PAIRS];
    LOAD_SPLITS(v, 0u)
    FLAT for (uint r = 0u; r < ROWS; r++)
        FLAT for (uint i = 0u; i < OWN; i++) {
            uint row = head * p.rows + min(first + t / LANES * ROWS + r, p.rows - 1u);
            uint g = row * CHUNKS + min(lane + i * LANES, CHUNKS - 1u);
            chunk_bytes(g, a[r * OWN + i], b[r * OWN + i]);
            scales[r * OWN + i] = chunk_scales(g);
        }
    if (gl_SubgroupID == 0u) weigh_splits(base, used);
    barrier();
    FLAT for (uint i = 0u; i < PAIRS; i++) latent[i] = vec2(0.0);
    for (uint s = 0u; s < used; s += AHEAD) {
        if (s > 0u) {
            LOAD_SPLITS(v, s)
        }
        FLAT for (uint j = 0u; j < AHEAD; j++) {
            float f = s + j < used ? factor[min(s + j, used - 1u)] : 0.0;
            FLAT for (uint i = 0u; i < PAIRS; i++) latent[i] += f * v[i * AHEAD + j];
        }
    }
    FLAT for (uint i = 0u; i < PAIRS; i++) {
        uint at = t + i * WORKGROUP;
        if (at >= RANK / 2u) break;
        x[2u * at] = latent[i].x;
        x[2u * at + 1u] = latent[i].y;
    }
    barrier();
    quantize_x(t);
    barrier();
    FLAT for (uint r = 0u; r < ROWS; r++) {
        float sum = 0.0;
        FLAT for (uint i = 0u; i < OWN; i++) {
            uint c = lane + i * LANES;
            float own = dot_of(a[r * OWN + i], b[r * OWN + i], scales[r * OWN + i],
                               min(c, CHUNKS - 1u));
            sum += c < CHUNKS ? own : 0.0;
        }
        for (uint d = LANES / 2u; d > 0u; d /= 2u) sum += subgroupShuffleXor(sum, d);
        if (lane == 0u) sums[t / LANES * ROWS + r] = sum;
    }
    barrier();
    if (stopped || (SUBGROUP >= 16u && gl_SubgroupID * SUBGROUP >= count)) return;
    quantize_values(head * p.rows + first, count, t, t < count ? sums[t] : 0.0);
}
