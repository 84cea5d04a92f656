// The residual stream as the dispatch before has left it: rows of a buffer whose sum it is. Every
// workgroup makes the sum, and from that, times the gain of a norm, the vector in int8.
// The shader declares x[] of vec4 (the rows), g and, with NORM, p.eps, and defines keep(), which is
// called for values 4 n … 4 n + 3 of the sum by the workgroup that stores it.
// spec, behind those of narrow_vector.glsl: 2 COLS (values of a row), 3 PARTS (rows), 4 SPLIT
// (lanes that share the parts of a value, a power of two, at most a quarter of the subgroup)

layout(constant_id = 2) const uint COLS = 64u;
layout(constant_id = 3) const uint PARTS = 2u;
layout(constant_id = 4) const uint SPLIT = 1u;

#ifndef WIDTH
#define WIDTH COLS
#endif
#include "narrow_vector.glsl"

const uint FOURS = COLS / 4u, RUN = SUBGROUP / SPLIT, PASS = TEAMS * RUN;
const uint PASSES = (FOURS + PASS - 1u) / PASS, EACH = (PARTS + SPLIT - 1u) / SPLIT;

shared float squares[TEAMS];

void keep(uint n, vec4 sum);

vec4 stream[PASSES], gain[PASSES];  // of a lane, before parts are joined

// Loads all that the sum needs. `first`: the lane's values of the first pass, by fours
void load_parts(uint first, uint split) {
    FLAT for (uint i = 0u; i < PASSES; i++) {
        uint n = min(first + i * PASS, FOURS - 1u);
        gain[i] = uintBitsToFloat(g4[p.g_p0 / 4u + n]);
        stream[i] = vec4(0.0);
        FLAT for (uint j = 0u; j < EACH; j++) {
            uint part = split + j * SPLIT;
            if (part < PARTS) stream[i] += x[part * FOURS + n];
        }
    }
}

// The vector, and sums of squares by subgroup, behind the barrier that ends this; false where the
// step has stopped
bool sum_parts(uint t, bool stores, bool stopped) {
    uint lane = t % SUBGROUP, split = lane / RUN, first = t / SUBGROUP * RUN + lane % RUN;
    load_parts(first, split);
    if (stopped) return false;  // here, so that no load waits for this
    float sum = 0.0;
    FLAT for (uint i = 0u; i < PASSES; i++) {
        for (uint lanes = RUN; lanes < SUBGROUP; lanes *= 2u)
            stream[i] += subgroupShuffleXor(stream[i], lanes);
        uint n = first + i * PASS;
        bool inside = split == 0u && n < FOURS;
        if (inside) sum += dot(stream[i], stream[i]);
        if (inside && stores) keep(n, stream[i]);
        quantize_x(n, stream[i] * gain[i], inside);
    }
    for (uint lanes = SUBGROUP / 2u; lanes > 0u; lanes /= 2u)
        sum += subgroupShuffleXor(sum, lanes);
    if (lane == 0u) squares[t / SUBGROUP] = sum;
    barrier();
    return true;
}

#ifdef NORM
float inverse_rms() {
    float sum = 0.0;
    for (uint i = 0u; i < TEAMS; i++) sum += squares[i];
    return inversesqrt(sum / float(COLS) + p.eps);
}
#endif
