// Sums over the lanes that share a product, when each holds partial sums of many: neighbours
// exchange halves, so that in the end a lane holds whole sums of its own, count / LANES of them.
// All counts are constants: an array that is indexed by anything else leaves the registers.
//
// HALVED(least, before): sums left after an exchange that takes place among `least` lanes or more.
// EXCHANGE(sums, before, after, distance): with the lane `distance` away (0: none). Declared by the
// user: `lane`, and `first`, the number of the first sum that the lane holds.

#define HALVED(LEAST, BEFORE) \
    (LANES >= LEAST ? (BEFORE > 1u ? (BEFORE % 2u == 0u ? BEFORE / 2u : BEFORE) : BEFORE) : BEFORE)

#define EXCHANGE(SUMS, BEFORE, AFTER, DISTANCE) \
    if (DISTANCE > 0u) { \
        bool up = (lane & DISTANCE) != 0u; \
        if (BEFORE != AFTER) { \
            FLAT for (uint i = 0u; i < AFTER; i++) { \
                float low = SUMS[i], high = SUMS[i + (BEFORE - AFTER)]; \
                SUMS[i] = (up ? high : low) + subgroupShuffleXor(up ? low : high, DISTANCE); \
            } \
            if (up) first += AFTER; \
        } else { \
            FLAT for (uint i = 0u; i < AFTER; i++) \
                SUMS[i] += subgroupShuffleXor(SUMS[i], DISTANCE); \
        } \
    }
