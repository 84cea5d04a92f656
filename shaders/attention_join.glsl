// Splits of a decode attention joined by the workgroup that finishes last. A split leaves, for each
// of the GROUP heads of a workgroup, HEAD_DIM sums, the largest score and the sum of exponentials.
// The stem declares part[] and p.splits.

const float NEVER = -1e30;
const uint MAX_SPLITS = 64u;

shared float best[GROUP * MAX_SPLITS], weight[GROUP * MAX_SPLITS];
shared bool last;

// Loads the states of all `used` splits of a head.
void load_splits(uint base, uint row, uint used, uint t) {
    for (uint e = t; e < GROUP * used; e += WORKGROUP) {
        uint at = base + (e / used * p.splits + e % used) * row;
        best[e] = part[at + HEAD_DIM];
        weight[e] = part[at + HEAD_DIM + 1u];
    }
    barrier();
}

// Value e of the head's parts, joined
float join_splits(uint base, uint row, uint used, uint e) {
    uint g = e / HEAD_DIM, at = base + g * p.splits * row + e % HEAD_DIM;
    float most = NEVER, sum = 0.0, total = 0.0;
    for (uint s = 0u; s < used; s++) most = max(most, best[g * used + s]);
    for (uint s = 0u; s < used; s += 8u) {
        float v[8];  // eight loads on their way at once
        FLAT for (uint j = 0u; j < 8u; j++) v[j] = part[at + min(s + j, used - 1u) * row];
        FLAT for (uint j = 0u; j < 8u; j++) {
            uint i = g * used + min(s + j, used - 1u);
            float shrink = s + j < used ? exp(best[i] - most) : 0.0;
            sum += shrink * v[j];
            total += shrink * weight[i];
        }
    }
    return sum / total;
}
