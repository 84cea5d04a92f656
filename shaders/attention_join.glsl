// Splits of a decode attention joined by the workgroup that finishes last. A split leaves, for each
// of the GROUP heads of a workgroup, HEAD_DIM sums, the largest score and the sum of exponentials.
// The stem declares part[], arrived[], p.splits, SUBGROUP and NEVER.

const uint MAX_SPLITS = 64u;
const uint AT_ONCE = 16u;  // parts of a value that are on their way at once
const uint STATES = (MAX_SPLITS + SUBGROUP - 1u) / SUBGROUP;  // of a lane

shared float worth[GROUP * MAX_SPLITS];  // by which a split's sums are multiplied
shared bool last;

float parts[AT_ONCE];

// Starts to load value e of the workgroup's heads, of the splits from `first` on.
void load_parts(uint base, uint row, uint used, uint e, uint first) {
    e = min(e, GROUP * HEAD_DIM - 1u);
    uint at = base + e / HEAD_DIM * p.splits * row + e % HEAD_DIM;
    FLAT for (uint j = 0u; j < AT_ONCE; j++) parts[j] = part[at + min(first + j, used - 1u) * row];
}

// Fills worth[]: exp(largest of the split - largest of all) / sum over all, 0 past `used`.
void weigh_splits(uint base, uint row, uint used) {
    for (uint g = gl_SubgroupID; g < GROUP; g += WORKGROUP / SUBGROUP) {
        float best[STATES], sums[STATES], most = NEVER, total = 0.0;
        FLAT for (uint i = 0u; i < STATES; i++) {
            uint s = gl_SubgroupInvocationID + i * SUBGROUP;
            uint at = base + (g * p.splits + min(s, used - 1u)) * row + HEAD_DIM;
            best[i] = part[at];
            sums[i] = part[at + 1u];
            if (s < used) most = max(most, best[i]);
        }
        for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) most = max(most, subgroupShuffleXor(most, d));
        FLAT for (uint i = 0u; i < STATES; i++) {
            best[i] = gl_SubgroupInvocationID + i * SUBGROUP < used ? exp(best[i] - most) : 0.0;
            total += best[i] * sums[i];
        }
        for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) total += subgroupShuffleXor(total, d);
        FLAT for (uint i = 0u; i < STATES; i++) {
            uint s = gl_SubgroupInvocationID + i * SUBGROUP;
            if (s < MAX_SPLITS) worth[g * MAX_SPLITS + s] = best[i] / total;
        }
    }
    barrier();
}

// Behind a split's writes to part[]: whether all `used` splits of these heads are written. Then the
// first values are on their way, and what the splits are worth is known.
bool arrives_last(uint heads, uint base, uint row, uint used, uint t) {
    memoryBarrierBuffer();
    barrier();
    if (t == 0u) last = atomicAdd(arrived[heads], 1u) + 1u == used;
    barrier();
    if (!last) return false;
    memoryBarrierBuffer();
    if (t == 0u) arrived[heads] = 0u;
    load_parts(base, row, used, t, 0u);
    weigh_splits(base, row, used);
    return true;
}

// Value e, of which load_parts loaded the first parts, joined
float join_splits(uint base, uint row, uint used, uint e) {
    float sum = 0.0;
    for (uint first = 0u; first < used; first += AT_ONCE) {
        if (first > 0u) load_parts(base, row, used, e, first);
        FLAT for (uint j = 0u; j < AT_ONCE; j++)
            if (first + j < used) sum += worth[e / HEAD_DIM * MAX_SPLITS + first + j] * parts[j];
    }
    return sum;
}
