// What the sampling shaders share: settings words, ordered keys, integer probabilities.
// engine/sampler.py holds the same table of words, engine/draw.py the same arithmetic.

const uint SET_GREEDY = 0u;      // 1: take the largest logit
const uint SET_INV_TEMP = 1u;    // float, 1 / temperature
const uint SET_TOP_K = 2u;       // 0 = off
const uint SET_TOP_P = 3u;       // share of the mass in units of 2^-32, all ones = off
const uint SET_MIN_LOG = 4u;     // float, ln(min_p)
const uint SET_REPEAT = 5u;      // float, factor of negative logits
const uint SET_INV_REPEAT = 6u;  // float, factor of positive logits
const uint SET_PRESENCE = 7u;    // float
const uint SET_FREQUENCY = 8u;   // float
const uint SET_WINDOW = 9u;      // tokens that penalties look back; 0 = no penalties
const uint SET_N_END = 10u;      // number of end ids
const uint SET_N_SUPPRESSED = 11u; // number of ids that are never drawn
const uint SET_END = 16u;        // the end ids, up to 64
const uint SET_SUPPRESSED = 80u; // the ids that are never drawn, ascending

// Unsigned keys sort like the floats they come from; 0 is left for values that are not finite.
uint order_key(float value) {
    uint bits = floatBitsToUint(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) return 0u;
    if (bits == 0x80000000u) bits = 0u; // -0 and +0 are a tie
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

float key_value(uint key) {
    return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key);
}

// round(2^30 e^x) for x <= 0, from additions and multiplications that every device rounds alike:
// e^x = 2^n e^f with |f| <= ln(2) / 2 (Cody and Waite), e^f by its Taylor series to f^6.
uint fixed_exp(float x) {
    if (!(x > -22.0)) return 0u; // below 2^-31
    precise float n = floor(x * 1.44269502 + 0.5);
    precise float f = x - n * 0.693359375;
    f = f - n * -2.12194440e-4; // ln(2) in two parts, the first one short enough to be exact
    precise float e = f * 1.38888892e-3 + 8.33333377e-3;
    e = e * f + 4.16666679e-2;
    e = e * f + 1.66666672e-1;
    e = e * f + 0.5;
    e = e * f + 1.0;
    e = e * f + 1.0;
    float scale = uintBitsToFloat(uint(int(n) + 157) << 23); // 2^(n + 30)
    precise float scaled = e * scale + 0.5;
    return uint(scaled);
}

// 64-bit unsigned integers as (low, high).
uvec2 add64(uvec2 a, uvec2 b) {
    uint carry;
    uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 sub64(uvec2 a, uvec2 b) {
    return uvec2(a.x - b.x, a.y - b.y - (a.x < b.x ? 1u : 0u));
}

bool less64(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }

// floor(a * share / 2^32)
uvec2 share64(uvec2 a, uint share) {
    uint low, low_hi, high, high_hi;
    umulExtended(a.x, share, low_hi, low);
    umulExtended(a.y, share, high_hi, high);
    return add64(uvec2(high, high_hi), uvec2(low_hi, 0u));
}

// Draws lay the survivors end to end in this order: by id modulo 1024, then by id.
uint draw_order(uint id) { return (id & 1023u) << 10 | id >> 10; }
