// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011). The state is the counter itself, so draw i of a seed needs no other draw.

// First word of the block at `counter` under `key`: uniform over all 32-bit values.
uint philox(uint counter, uvec2 key) {
    uvec4 c = uvec4(counter, 0u, 0u, 0u);
    for (uint round = 0u; round < 10u; round++) {
        uint hi0, lo0, hi1, lo1;
        umulExtended(0xD2511F53u, c.x, hi0, lo0);
        umulExtended(0xCD9E8D57u, c.z, hi1, lo1);
        c = uvec4(hi1 ^ c.y ^ key.x, lo1, hi0 ^ c.w ^ key.y, lo0);
        key += uvec2(0x9E3779B9u, 0xBB67AE85u); // golden ratio and sqrt(3) - 1, as in the paper
    }
    return c.x;
}
