// Body of attention_combine.comp and attention_combine_sinks.comp.
const uint MAX_SPLITS = 64u;
shared float best[MAX_SPLITS], weight[MAX_SPLITS];
uint used = 1u;  // empty splits come last and hold no values
float most, total = 0.0;

// Loads the states of a head's splits; all invocations take part.
void load_splits(uint base, uint row) {
    for (uint s = gl_LocalInvocationID.x; s < p.splits; s += WORKGROUP) {
        best[s] = part[base + s * row + p.head_dim];
        weight[s] = part[base + s * row + p.head_dim + 1u];
    }
    barrier();
    most = best[0];
    while (used < p.splits && weight[used] > 0.0) most = max(most, best[used++]);
#ifdef SINKS
    float sink = uintBitsToFloat(sinks[p.sinks_p0 + gl_WorkGroupID.x]);
    most = max(most, sink);
    total = exp(sink - most);
#endif
    for (uint s = 0u; s < used; s++) total += exp(best[s] - most) * weight[s];
}

// Value d of the head
float joined(uint base, uint row, uint d) {
    float sum = 0.0;
    for (uint s = 0u; s < used; s += 4u) {
        float v[4];  // four loads on their way at once
        for (uint j = 0u; j < 4u; j++) v[j] = part[base + min(s + j, used - 1u) * row + d];
        for (uint j = 0u; j < 4u; j++)
            if (s + j < used) sum += exp(best[s + j] - most) * v[j];
    }
    return sum / total;
}

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint head = gl_WorkGroupID.x, row = p.head_dim + 2u;
    uint base = head * p.splits * row;
    load_splits(base, row);
    for (uint d = gl_LocalInvocationID.x; d < p.head_dim; d += WORKGROUP)
        y[head * p.head_dim + d] = joined(base, row, d);
}
