// What mla_prefill.comp and mla_prefill_chosen.comp do: the heads of a workgroup, for one token.
void main() {
    uint t = gl_LocalInvocationID.x, token = gl_WorkGroupID.x, head = gl_WorkGroupID.y * HEADS;
    if (step[STEP_STOP] != 0u || token >= step[STEP_N]) return;
    attend(token, head, p.heads, 0u, positions_of(token), t);
    FLAT for (uint h = 0u; h < HEADS; h++) {
        if (head + h >= p.heads) break;
        uint at = (token * p.heads + head + h) * RANK;
        FLAT for (uint j = 0u; j < PAIRS; j++) {
            uint i = t + j * WORKGROUP;
            if (i >= RANK / 2u) break;
            vec2 v = sums[h * PAIRS + j] / total[h];
            y[at + 2u * i] = v.x;
            y[at + 2u * i + 1u] = v.y;
        }
    }
}
