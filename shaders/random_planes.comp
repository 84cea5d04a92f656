#version 450
#extension GL_GOOGLE_include_directive : require
// Words of a plane of random weights. A plane of quants takes any bits: hashes of the words' numbers.
// Other planes are made of units, words of whole blocks, each one drawn from a table of valid ones.
#include "types.glsl"

layout(local_size_x_id = 0) in;

READS(0, uint, table)
UPDATES(1, uint, dst)
PUSH {
    uint dst_word; uint count;  // words to write
    uint first;                 // number of the first one in its plane
    uint seed;
    uint unit;                  // words of a unit; 0: any bits
    uint units;                 // in the table, a power of two
    uint table_word;
} p;

const uint WORDS = 4u; // per invocation, a workgroup apart from each other

// The 32-bit mix of two rounds with the constants 7feb352d, 846ca68b (C. Wellons, "Prospecting for
// hash functions", 2018); the seed comes in between, so that seeds are no shifts of each other.
uint hash(uint x) {
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= p.seed ^ (x >> 15);
    x *= 0x846CA68Bu;
    return x ^ (x >> 16);
}

void main() {
    uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint i = group * gl_WorkGroupSize.x * WORDS + gl_LocalInvocationID.x;
    for (uint k = 0u; k < WORDS && i < p.count; k++, i += gl_WorkGroupSize.x) {
        uint at = p.first + i, word;
        if (p.unit == 0u) {
            word = hash(at);
        } else {
            uint number = at / p.unit;
            uint drawn = hash(number) & (p.units - 1u);
            word = table[p.table_word + drawn * p.unit + at - number * p.unit];
        }
        dst[p.dst_word + i] = word;
    }
}
