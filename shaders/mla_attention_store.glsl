// What mla_attention.comp and mla_attention_chosen.comp do: one split of one token.
void main() {
    uint t = gl_LocalInvocationID.x, split = gl_WorkGroupID.x, head = gl_WorkGroupID.y * HEADS;
    if (step[STEP_STOP] != 0u) return;
    uint len = length_seen(), per = split_length(len);
    if (split * per >= len) return;
    attend(0u, head, p.heads, split * per, min((split + 1u) * per, len), t);
    FLAT for (uint h = 0u; h < HEADS; h++) {
        if (head + h >= p.heads) break;
        uint at = ((head + h) * p.splits + split) * (RANK + 2u);
        FLAT for (uint j = 0u; j < PAIRS; j++) {
            uint i = t + j * WORKGROUP;
            if (i >= RANK / 2u) break;
            part[at + 2u * i] = sums[h * PAIRS + j].x;
            part[at + 2u * i + 1u] = sums[h * PAIRS + j].y;
        }
        if (t == 0u) {
            part[at + RANK] = most[h];
            part[at + RANK + 1u] = total[h];
        }
    }
}
