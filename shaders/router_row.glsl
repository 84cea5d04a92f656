// The logit of one expert by a workgroup, all of its loads on their way at once.
// The including shader declares the constants WORKGROUP, SUBGROUP and COLS.

const uint SUBGROUPS = WORKGROUP / SUBGROUP;
const uint STEPS = (COLS / 4u + WORKGROUP - 1u) / WORKGROUP;

shared vec2 partial[SUBGROUPS];

// The logit of the workgroup's expert, in the first subgroup
float logit(uint t, uint expert) {
    vec4 v[STEPS], gain[STEPS], row[STEPS];
    FLAT for (uint i = 0u; i < STEPS; i++) {
        uint c = min(t + i * WORKGROUP, COLS / 4u - 1u);
        row[i] = uintBitsToFloat(w4[p.w_p0 / 4u + expert * (COLS / 4u) + c]);
        v[i] = x[c] * (t + i * WORKGROUP < COLS / 4u ? 1.0 : 0.0);
        gain[i] = uintBitsToFloat(g4[p.g_p0 / 4u + c]);
    }
    vec2 sums = vec2(0.0);
    FLAT for (uint i = 0u; i < STEPS; i++)
        sums += vec2(dot(v[i] * gain[i], row[i]), dot(v[i], v[i]));
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) sums += subgroupShuffleXor(sums, d);
    if (gl_SubgroupInvocationID == 0u) partial[gl_SubgroupID] = sums;
    barrier();
    sums = vec2(0.0);
    FLAT for (uint i = 0u; i < SUBGROUPS; i++) sums += partial[i];
    return sums.x * inversesqrt(sums.y / float(COLS) + p.eps);
}
