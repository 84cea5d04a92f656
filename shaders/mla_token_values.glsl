// The values of the mla_token family: VALUES rows of v_b of a workgroup times the weighted latent, in
// int8. VALUE_LANES lanes load VALUE_ROWS rows at once.

const uint V_UNITS = RANK / (32u * UNIT), V_OWN = (V_UNITS + VALUE_LANES - 1u) / VALUE_LANES;
Unit v_units[VALUE_ROWS * V_OWN];
shared float outs[VALUES];

// Rows from v0 on; `first`: the workgroup's first one
void load_values(uint first, uint v0, uint lane) {
    if (v0 >= VALUES) return;
    LOAD_UNITS(v_units, VALUE_ROWS, V_OWN, V_UNITS, VALUE_LANES,
               (first + min(v0 + r, VALUES - 1u)) * V_UNITS)
}

// The rows times x, into int8
void expand(uint first, uint t) {
    uint lane = t % VALUE_LANES, row0 = t / VALUE_LANES * VALUE_ROWS;
    for (uint v0 = row0; v0 < VALUES; v0 += WORKGROUP / VALUE_LANES * VALUE_ROWS) {
        if (v0 != row0) load_values(first, v0, lane);
        float sum[VALUE_ROWS];
        DOT_UNITS(sum, v_units, VALUE_ROWS, V_OWN, V_UNITS, VALUE_LANES)
        if (lane == 0u)
            FLAT for (uint r = 0u; r < VALUE_ROWS; r++) if (v0 + r < VALUES) outs[v0 + r] = sum[r];
    }
    barrier();
    for (uint n = t; n < VALUES / 4u; n += WORKGROUP) {
        vec2 z;
        uint word = quantized(vec4(outs[4u * n], outs[4u * n + 1u], outs[4u * n + 2u],
                                   outs[4u * n + 3u]), z);
        yq[first / 4u + n] = word;
        if ((n & 3u) == 0u) ys[(first + 4u * n) / 16u] = z;
    }
}
