// Products of quantized weights in mla_token.glsl: a group of lanes takes some rows, a lane units of
// them (units_q8.glsl), which are loaded before x is there.

#include "units_q8.glsl"

#ifndef QUADS
struct Unit { uvec4 a; uvec4 b; vec4 s; };

Unit unit_fetch(uint row, uint units, uint i) {
    Unit u;
    chunk_bytes(row * units + i, u.a, u.b);
    u.s = chunk_scales(row * units + i);
    return u;
}

// As chunk_dot_q8, of a chunk that is there already
float unit_dot_of(Unit u, uint i, Inputs x) {
    float da = float(dot16(u.a, x.a)) * x.za.x - QUANT_OFFSET * x.za.y;
    float db = float(dot16(u.b, x.b)) * x.zb.x - OFFSET_B * x.zb.y;
#if !defined(MINIMA) && !defined(SCALES_16)
    return u.s.x * (da + db);
#elif defined(Q4_1) || defined(Q5_1)
    return u.s.x * (da + db) + u.s.y * (x.za.y + x.zb.y);
#else
    return u.s.x * da + u.s.y * x.za.y + u.s.z * db + u.s.w * x.zb.y;
#endif
}
#endif

// Units of ROWS rows, OWN of a lane; FROM: the number of the first one of row r. COUNT of a row
#define LOAD_UNITS(TO, ROWS, OWN, COUNT, LANES_, FROM) \
    FLAT for (uint r = 0u; r < ROWS; r++) \
        FLAT for (uint i = 0u; i < OWN; i++) \
            TO[r * OWN + i] = unit_fetch(0u, 0u, FROM + min(lane + i * LANES_, COUNT - 1u));

// Their products with x, for all lanes of a group
#define DOT_UNITS(SUMS, OF, ROWS, OWN, COUNT, LANES_) \
    FLAT for (uint r = 0u; r < ROWS; r++) SUMS[r] = 0.0; \
    FLAT for (uint i = 0u; i < OWN; i++) { \
        uint c = lane + i * LANES_, at = min(c, COUNT - 1u); \
        Inputs x = unit_inputs(0u, at); \
        FLAT for (uint r = 0u; r < ROWS; r++) { \
            float own = unit_dot_of(OF[r * OWN + i], at, x); \
            SUMS[r] += c < COUNT ? own : 0.0; \
        } \
    } \
    for (uint d = LANES_ / 2u; d > 0u; d /= 2u) \
        FLAT for (uint r = 0u; r < ROWS; r++) SUMS[r] += subgroupShuffleXor(SUMS[r], d);
