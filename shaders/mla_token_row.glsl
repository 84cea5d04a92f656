// The token's own cache row, by one subgroup: normalised latent, rotated key.
// Declared by the user: WIDTH, KEYS, FIRST (of the latent in a[]), GAIN (of its norm's gain in h) and
// keep_word(i, word, at, stores), which keeps word i of the row; `at`: where the row lies in the cache.

vec2 turned(uint pos, uint pair, vec2 v) {
    vec2 cs = rope[pos * (ROT / 2u) + pair];
    return vec2(v.x * cs.x - v.y * cs.y, v.x * cs.y + v.y * cs.x);
}

vec2 pair_of(vec4 four, uint i) { return (i & 1u) == 0u ? four.xy : four.zw; }

const uint FOURS = RANK / 4u, ROW_OWN = (FOURS + SUBGROUP - 1u) / SUBGROUP;
vec4 row_latent[ROW_OWN], row_gain[ROW_OWN], row_key[KEYS];

// What the token's cache row is made of, for one subgroup
void load_row(uint lane) {
    FLAT for (uint i = 0u; i < ROW_OWN; i++) {
        uint at = min(lane + i * SUBGROUP, FOURS - 1u);
        row_latent[i] = a[FIRST / 4u + at];
        row_gain[i] = uintBitsToFloat(h4[(p.h_p0 + GAIN) / 4u + at]);
    }
    FLAT for (uint i = 0u; i < KEYS; i++)
        row_key[i] = a[(FIRST + RANK) / 4u + min(lane + i * SUBGROUP, ROT / 2u - 1u) / 2u];
}

void make_row(uint pos, uint lane, bool stores) {
    uint to = p.k_base + pos * (WIDTH / 2u);
    float squares = 0.0;
    FLAT for (uint i = 0u; i < ROW_OWN; i++)
        squares += lane + i * SUBGROUP < FOURS ? dot(row_latent[i], row_latent[i]) : 0.0;
    FLAT for (uint j = 0u; j < KEYS; j++) {
        uint i = lane + j * SUBGROUP;
        vec2 key = turned(pos, min(i, ROT / 2u - 1u), pair_of(row_key[j], i));
        if (i < ROT / 2u) keep_word(RANK / 2u + i, packHalf2x16(key), to, stores);
    }
    float scale = inversesqrt(subgroup_sum(squares) / float(RANK) + p.eps);
    FLAT for (uint i = 0u; i < ROW_OWN; i++) {
        uint at = lane + i * SUBGROUP;
        vec4 own = row_latent[i] * scale * row_gain[i];
        if (at < FOURS) {
            keep_word(2u * at, packHalf2x16(own.xy), to, stores);
            keep_word(2u * at + 1u, packHalf2x16(own.zw), to, stores);
        }
    }
}
