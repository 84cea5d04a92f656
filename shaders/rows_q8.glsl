// Lanes and rows of the int8 mat-vecs: a group of LANES lanes takes ROWS rows, and KSPLIT groups of
// different subgroups share the columns of the same rows. Several rows per group reuse the
// activations that a lane loads; several groups per row keep enough loads in flight.
// MATRICES (gate and up: 2) are multiplied with the same activations.
//
// spec: 0 workgroup, 1 LANES, 2 ROWS, 3 subgroup size, 4 UNROLL (units of a lane in flight),
// 5 KSPLIT (a power of two, at most the number of subgroups)

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint LANES = 8u;
layout(constant_id = 2) const uint ROWS = 2u;
layout(constant_id = 3) const uint SUBGROUP = 8u;
layout(constant_id = 4) const uint UNROLL = 1u;
layout(constant_id = 5) const uint KSPLIT = 1u;

#include "units_q8.glsl"

const uint SUMS = MATRICES * ROWS;
const uint PER_SUBGROUP = SUBGROUP / LANES, STRIDE = LANES * KSPLIT;
const uint GROUPS = WORKGROUP / SUBGROUP / KSPLIT * PER_SUBGROUP;
const uint WG_ROWS = GROUPS * ROWS;

shared float partial[GROUPS * SUMS * KSPLIT];

float acc[SUMS];

void clear_sums() {
    FLAT for (uint i = 0u; i < SUMS; i++) acc[i] = 0.0;
}

// Adds `share` times the products of unit c of rows row0 …, of `units` units each. `other` rows
// on lie those of the second matrix; activations start at group x0.
#define ADD_UNIT(x0, c, share, row0, last, other, units) { \
    INPUTS(x0, c, share); \
    FLAT for (uint r = 0u; r < ROWS; r++) { \
        uint row = min(row0 + r, last); \
        FLAT for (uint m = 0u; m < MATRICES; m++) \
            acc[m * ROWS + r] += PRODUCT(row + m * (other), units, c, share); \
    } \
}

// Sums of a group's lanes into partial[], for row_sum
void join_lanes(uint lane, uint group, uint part) {
    for (uint d = LANES / 2u; d > 0u; d /= 2u)
        FLAT for (uint i = 0u; i < SUMS; i++) acc[i] += subgroupShuffleXor(acc[i], d);
    if (lane == 0u)
        FLAT for (uint i = 0u; i < SUMS; i++) partial[(group * SUMS + i) * KSPLIT + part] = acc[i];
    barrier();
}

// Sum of row i of the workgroup in a matrix over the column parts
float row_sum(uint row, uint matrix) {
    uint at = (row / ROWS * SUMS + matrix * ROWS + row % ROWS) * KSPLIT;
    float sum = 0.0;
    for (uint i = 0u; i < KSPLIT; i++) sum += partial[at + i];
    return sum;
}
