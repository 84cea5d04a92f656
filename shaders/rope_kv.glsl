// Rotates q in place, writes rotated k and plain v of a batch into the caches.
// One invocation per pair of values.
// PAIRS: values (2i, 2i + 1) rotate together; HALVES: values (i, i + n_rot / 2).
// rope holds (cos, sin) for every position and pair (engine/rope.py).

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
#ifdef ANY
layout(constant_id = 1) const uint K_TYPE = 0u;
layout(constant_id = 2) const uint V_TYPE = 0u;
#endif
layout(constant_id = 3) const uint RING = 0u;  // rows of the caches (cache.glsl)

#include "cache_store.glsl"

vec2 rotate(uint pos, uint pair, vec2 ab) {
    vec2 cs = rope[pos * (p.n_rot / 2u) + pair];
    return vec2(ab.x * cs.x - ab.y * cs.y, ab.x * cs.y + ab.y * cs.x);
}

// value d of a rotated head that starts at qkv[base]
float rotated(uint base, uint d, uint pos) {
    float own = qkv[base + d];
    if (d >= p.n_rot) return own;
    uint half_rot = p.n_rot / 2u;
#ifdef HALVES
    bool first = d < half_rot;
    uint pair = first ? d : d - half_rot, other = first ? d + half_rot : d - half_rot;
#else
    bool first = (d & 1u) == 0u;
    uint pair = d / 2u, other = d ^ 1u;
#endif
    vec2 ab = first ? vec2(own, qkv[base + other]) : vec2(qkv[base + other], own);
    vec2 r = rotate(pos, pair, ab);
    return first ? r.x : r.y;
}

// Rotates pair i of the query heads of a row that starts at qkv[base]
void rotate_query(uint base, uint pos, uint i) {
    uint half_dim = p.head_dim / 2u, half_rot = p.n_rot / 2u;
    uint head = base + i / half_dim * p.head_dim, j = i % half_dim;
    // a pair that rotates together is one invocation's, so that rotating in place is safe
    if (i >= p.n_head * half_dim || j >= half_rot) return;
#ifdef HALVES
    uint d0 = j, d1 = j + half_rot;
#else
    uint d0 = 2u * j, d1 = d0 + 1u;
#endif
    vec2 r = rotate(pos, j, vec2(qkv[head + d0], qkv[head + d1]));
    qkv[head + d0] = r.x;
    qkv[head + d1] = r.y;
}

// A workgroup has pairs of q, of k or of v.
void main() {
    uint row = gl_WorkGroupID.y, wg = gl_WorkGroupID.x, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    uint q_dim = p.n_head * p.head_dim, kv_dim = p.n_head_kv * p.head_dim;
    uint pos = step[STEP_POS] + row, base = row * (q_dim + 2u * kv_dim);
    uint q_groups = (q_dim / 2u + WORKGROUP - 1u) / WORKGROUP;
    uint kv_groups = (kv_dim / 2u + WORKGROUP - 1u) / WORKGROUP;
    if (wg < q_groups) {
        rotate_query(base, pos, wg * WORKGROUP + t);
        return;
    }
    wg -= q_groups;
    bool to_v = wg >= kv_groups;
    uint column = ((to_v ? wg - kv_groups : wg) * WORKGROUP + t) * 2u;
    uint d = column % p.head_dim, head = base + q_dim + (to_v ? kv_dim : 0u) + column - d;
    vec2 pair = vec2(0.0);
    if (column < kv_dim)
        pair = to_v ? vec2(qkv[head + d], qkv[head + d + 1u])
                    : vec2(rotated(head, d, pos), rotated(head, d + 1u, pos));
    store_row(to_v, pos, kv_dim, column, pair.x, pair.y);
}
