// Rotates q in place, writes rotated k and plain v of a batch into the caches.
// One invocation per pair of values; pairs of a row: q, then k, then v.
// PAIRS: values (2i, 2i + 1) rotate together; HALVES: values (i, i + n_rot / 2).
// rope holds (cos, sin) for every position and pair (engine/rope.py).

layout(local_size_x_id = 0) in;

#include "cache.glsl"

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

void main() {
    uint row = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
    uint half_dim = p.head_dim / 2u;
    uint q_pairs = p.n_head * half_dim, kv_pairs = p.n_head_kv * half_dim;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N] || i >= q_pairs + 2u * kv_pairs) return;
    uint pos = step[STEP_POS] + row;
    uint base = row * (2u * (q_pairs + 2u * kv_pairs));
    if (i < q_pairs) {
        uint head = base + i / half_dim * p.head_dim, j = i % half_dim;
#ifdef HALVES
        // a pair that rotates together is one invocation's, so that rotating in place is safe
        uint half_rot = p.n_rot / 2u;
        if (j >= half_rot) return;
        uint d0 = j, d1 = j + half_rot;
#else
        if (2u * j >= p.n_rot) return;
        uint d0 = 2u * j, d1 = d0 + 1u;
#endif
        vec2 r = rotate(pos, j, vec2(qkv[head + d0], qkv[head + d1]));
        qkv[head + d0] = r.x;
        qkv[head + d1] = r.y;
        return;
    }
    uint kv = i - q_pairs;
    bool to_v = kv >= kv_pairs;
    if (to_v) kv -= kv_pairs;
    uint head = kv / half_dim, d = kv % half_dim * 2u;
    uint from = base + 2u * q_pairs + (to_v ? 2u * kv_pairs : 0u) + head * p.head_dim;
    uint at = (pos * p.n_head_kv + head) * p.head_dim + d;
    if (to_v) store_cached(true, at, qkv[from + d], qkv[from + d + 1u]);
    else store_cached(false, at, rotated(from, d, pos), rotated(from, d + 1u, pos));
}
