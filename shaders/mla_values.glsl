// The values of a head from the splits of its latent attention: the splits joined, then the head's
// rows of v_b. PARTS workgroups share the rows of a head; each joins the splits anew.
//
// spec: 0 workgroup, 1 PARTS, 2 RANK, 3 LANES (per row), 4 ROWS (of a part), 5 SPLITS
// Shared memory: 4 * (RANK + 2 * SPLITS + LANES * ROWS) bytes.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint PARTS = 1u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint LANES = 8u;
layout(constant_id = 4) const uint ROWS = 16u;
layout(constant_id = 5) const uint SPLITS = 1u;

shared float x[RANK], weight[SPLITS], best[SPLITS], partial[LANES * ROWS];

#include "mla_splits.glsl"

void join_splits(uint head, uint t) {
    const uint ROW = RANK + 2u;
    uint len = length_seen(), per = split_length(len), used = (len + per - 1u) / per;
    uint base = head * p.splits * ROW;
    for (uint s = t; s < used; s += WORKGROUP) {
        best[s] = part[base + s * ROW + RANK];
        weight[s] = part[base + s * ROW + RANK + 1u];
    }
    barrier();
    float most = best[0], total = 0.0;
    for (uint s = 1u; s < used; s++) most = max(most, best[s]);
    for (uint s = 0u; s < used; s++) total += weight[s] * exp(best[s] - most);
    for (uint i = t; i < RANK; i += WORKGROUP) {
        float sum = 0.0;
        for (uint s = 0u; s < used; s++)
            sum += part[base + s * ROW + i] * exp(best[s] - most);
        x[i] = sum / total;
    }
    barrier();
}

// Rows `row0` … of v_b times x, in partial[] by row and lane
void rows_of_values(uint row0, uint t) {
    uint lane = t % LANES;
    for (uint r = t / LANES; r < ROWS; r += WORKGROUP / LANES) {
        float sum = 0.0;
        for (uint c = lane; c < RANK / 32u; c += LANES) {
            uint ca = chunk_a(c), cb = chunk_b(c);
            vec4 xa[4], xb[4], ta = vec4(0.0), tb = vec4(0.0);
            FLAT for (uint i = 0u; i < 4u; i++) {
                FLAT for (uint j = 0u; j < 4u; j++) {
                    xa[i][j] = x[ca + 4u * i + j];
                    xb[i][j] = x[cb + 4u * i + j];
                }
                ta += xa[i];
                tb += xb[i];
            }
            vec2 sums = vec2(dot(ta, vec4(1.0)), dot(tb, vec4(1.0)));
            sum += chunk_dot((row0 + r) * (RANK / 32u) + c, xa, xb, sums);
        }
        partial[r * LANES + lane] = sum;
    }
    barrier();
}

float row_of_values(uint r) {
    float sum = 0.0;
    for (uint i = 0u; i < LANES; i++) sum += partial[r * LANES + i];
    return sum;
}
