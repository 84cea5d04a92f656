// Rotation of rows of q and k in pairs of neighbours, where a kernel makes them: q is kept in y,
// rotated k and plain v go into the caches. cache.glsl is there, and p has the sizes of heads.

// Cosine and sine for rows `row` and row + 1 of [q; k; v]
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
