// mla_absorb by subgroups: LANES lanes take ROWS rows of k_b, 8 columns each at a time. A lane has
// its part of the query in registers and loads all of its weights before it multiplies.
//
// spec: 0 workgroup, 1 PARTS (workgroups per head), 2 LANES, 3 ROWS (at most LANES), 4 NOPE,
// 5 subgroup size. The first workgroup writes the cache.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint PARTS = 1u;
layout(constant_id = 2) const uint LANES = 8u;
layout(constant_id = 3) const uint ROWS = 1u;
layout(constant_id = 4) const uint NOPE = 64u;
layout(constant_id = 5) const uint SUBGROUP = 8u;

const uint PIECES = (NOPE / 8u + LANES - 1u) / LANES;  // of 8 columns, per lane
#ifdef KB16
const uint RAW = 1u;  // vectors of 16 bytes of a piece
#else
const uint RAW = 2u;
#endif

shared float partial[WORKGROUP / SUBGROUP];
#include "mla_cache.glsl"

void rotate_query(uint head, uint pos, uint t) {
    uint to = head * (p.rank + p.n_rot) + p.rank;
    for (uint i = t; i < p.n_rot / 2u; i += WORKGROUP) {
        vec2 v = turned(pos, i, x[(head * (NOPE + p.n_rot) + NOPE) / 2u + i]);
        q[to + 2u * i] = v.x;
        q[to + 2u * i + 1u] = v.y;
    }
}

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID, pos = step[STEP_POS];
    if (gl_WorkGroupID.x == 0u) {
        if (!stopped) write_latent(pos, 0u, p.first, t);
        return;
    }
    uint lane = t % LANES, head = (gl_WorkGroupID.x - 1u) / PARTS;
    uint part = (gl_WorkGroupID.x - 1u) % PARTS, row0 = (part * (WORKGROUP / LANES) + t / LANES) * ROWS;
    vec2 query[PIECES * 4u];
    uvec4 w[ROWS * PIECES * RAW];
    FLAT for (uint i = 0u; i < PIECES; i++) {
        uint piece = lane + i * LANES, at = min(piece, NOPE / 8u - 1u) * 8u;
        FLAT for (uint r = 0u; r < ROWS; r++) {
            uint from = (head * p.rank + min(row0 + r, p.rank - 1u)) * NOPE + at;
            FLAT for (uint j = 0u; j < RAW; j++)
                w[(r * PIECES + i) * RAW + j] = kb4[p.kb_p0 / 4u + from * RAW / 8u + j];
        }
        float inside = piece < NOPE / 8u ? 1.0 : 0.0;  // lanes past the row's end add nothing
        FLAT for (uint j = 0u; j < 4u; j++)
            query[i * 4u + j] = x[(head * (NOPE + p.n_rot) + at) / 2u + j] * inside;
    }
    if (stopped) return;
    float sum[ROWS];
    FLAT for (uint r = 0u; r < ROWS; r++) {
        vec2 both = vec2(0.0);
        FLAT for (uint i = 0u; i < PIECES; i++) {
            uvec4 u = w[(r * PIECES + i) * RAW];
#ifdef KB16
            FLAT for (uint j = 0u; j < 4u; j++) both += unpackHalf2x16(u[j]) * query[i * 4u + j];
#else
            vec4 lo = uintBitsToFloat(u), hi = uintBitsToFloat(w[(r * PIECES + i) * RAW + 1u]);
            both += lo.xy * query[i * 4u] + lo.zw * query[i * 4u + 1u];
            both += hi.xy * query[i * 4u + 2u] + hi.zw * query[i * 4u + 3u];
#endif
        }
        sum[r] = both.x + both.y;
    }
    for (uint d = LANES / 2u; d > 0u; d /= 2u)
        FLAT for (uint r = 0u; r < ROWS; r++) sum[r] += subgroupShuffleXor(sum[r], d);
    FLAT for (uint r = 0u; r < ROWS; r++)
        if (lane == r && row0 + r < p.rank) q[head * (p.rank + p.n_rot) + row0 + r] = sum[r];
    if (part == 0u) rotate_query(head, pos, t);
}
