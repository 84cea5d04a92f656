// Attention of the mla_token family: cache rows, softmax, the subgroups' sums joined. FRESH: the
// token's own row is in fresh[], not in the cache.

const uint VECS = RANK / 8u, HALF = VECS + 4u;       // 16-byte vectors of a latent; see join()
const uint OWN = (VECS + SUBGROUP - 1u) / SUBGROUP;  // of a lane
const uint TOGETHER = AHEAD < 4u ? AHEAD : 4u;  // rows whose softmax is one step; divides AHEAD
const float NEVER = -1e30;

shared vec2 state[TEAMS];  // largest score, sum of exponentials
shared vec4 slots[SLOTS * 2u * HALF];

uvec4 rows[AHEAD * OWN];  // cache rows on their way
uint keys[AHEAD * KEYS];
vec2 latent[OWN * 4u], key[KEYS];  // of the absorbed query
vec2 sums[OWN * 4u];
float largest = NEVER, total = 0.0;

// Cache rows of positions first, first + TEAMS, …: what lies behind the context is not used
void load_rows(uint first, uint lane) {
    FLAT for (uint u = 0u; u < AHEAD; u++) {
        uint row = min(first + u * TEAMS, CACHE_ROWS - 1u) * (WIDTH / 8u) + p.k_base / 4u;
        FLAT for (uint j = 0u; j < OWN; j++)
            rows[u * OWN + j] = k[row + min(lane + j * SUBGROUP, VECS - 1u)];
        FLAT for (uint j = 0u; j < KEYS; j++)
            keys[u * KEYS + j] = k_words[row * 4u + RANK / 2u
                + min(lane + j * SUBGROUP, ROT / 2u - 1u)];
    }
}

#ifdef FRESH
// The token's own row in the place of row u
void take_fresh(uint u, uint lane) {
    FLAT for (uint j = 0u; j < OWN; j++)
        rows[u * OWN + j] = fresh[min(lane + j * SUBGROUP, VECS - 1u)];
    FLAT for (uint j = 0u; j < KEYS; j++) {
        uint i = RANK / 2u + min(lane + j * SUBGROUP, ROT / 2u - 1u);
        keys[u * KEYS + j] = fresh[i / 4u][i & 3u];
    }
}
#define CURB(u, i, pos) if (i >= pos) take_fresh(u, lane)
#else
// Nothing in the place of row u: caches may hold anything behind the context
void drop_row(uint u) {
    FLAT for (uint j = 0u; j < OWN; j++) rows[u * OWN + j] = uvec4(0u);
    FLAT for (uint j = 0u; j < KEYS; j++) keys[u * KEYS + j] = 0u;
}
#define CURB(u, i, pos) if (i > pos) drop_row(u)
#endif

// The lane's part of the absorbed query
void take_query(uint lane) {
    FLAT for (uint j = 0u; j < OWN; j++) {
        uint v = lane + j * SUBGROUP, at = min(v, VECS - 1u) * 8u;
        float inside = v < VECS ? 1.0 : 0.0;
        FLAT for (uint c = 0u; c < 4u; c++)
            latent[j * 4u + c] = vec2(absorbed[at + 2u * c], absorbed[at + 2u * c + 1u]) * inside;
    }
    FLAT for (uint j = 0u; j < KEYS; j++) {
        uint i = lane + j * SUBGROUP, at = RANK + 2u * min(i, ROT / 2u - 1u);
        key[j] = vec2(absorbed[at], absorbed[at + 1u]) * (i < ROT / 2u ? 1.0 : 0.0);
    }
}

// The lane's part of the score of row u
float part_of(uint u) {
    vec2 both = vec2(0.0);
    FLAT for (uint j = 0u; j < OWN; j++)
        FLAT for (uint c = 0u; c < 4u; c++)
            both += latent[j * 4u + c] * unpackHalf2x16(rows[u * OWN + j][c]);
    FLAT for (uint j = 0u; j < KEYS; j++)
        both += key[j] * unpackHalf2x16(keys[u * KEYS + j]);
    return both.x + both.y;
}

// TOGETHER rows from row u0 on, the first of which is that of position i0
void take_rows(uint u0, uint i0, uint pos, uint lane) {
    float score[TOGETHER], top = largest;
    FLAT for (uint u = 0u; u < TOGETHER; u++) {
        CURB(u0 + u, i0 + u * TEAMS, pos);
        score[u] = part_of(u0 + u);
    }
    FLAT for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u)
        FLAT for (uint u = 0u; u < TOGETHER; u++) score[u] += subgroupShuffleXor(score[u], d);
    FLAT for (uint u = 0u; u < TOGETHER; u++)
        if (i0 + u * TEAMS <= pos) top = max(top, score[u]);
    float shrink = exp(largest - top);
    largest = top;
    total *= shrink;
    FLAT for (uint i = 0u; i < OWN * 4u; i++) sums[i] *= shrink;
    FLAT for (uint u = 0u; u < TOGETHER; u++) {
        float e = i0 + u * TEAMS <= pos ? exp(score[u] - top) : 0.0;
        total += e;
        FLAT for (uint j = 0u; j < OWN; j++)
            FLAT for (uint c = 0u; c < 4u; c++)
                sums[j * 4u + c] += e * unpackHalf2x16(rows[(u0 + u) * OWN + j][c]);
    }
}

// Positions up to `pos`, those of one subgroup: largest score, exponentials, weighted latents
void attend(uint pos, uint team, uint lane) {
    take_query(lane);
    FLAT for (uint i = 0u; i < OWN * 4u; i++) sums[i] = vec2(0.0);
    for (uint i0 = team; i0 <= pos; i0 += TEAMS * AHEAD) {
        if (i0 != team) load_rows(i0, lane);
        FLAT for (uint u = 0u; u < AHEAD; u += TOGETHER)
            if (i0 + u * TEAMS <= pos) take_rows(u, i0 + u * TEAMS, pos, lane);
    }
}

// The subgroups' sums into x, in int8. First halves of all vectors lie together, then second ones,
// in other banks: lanes write neighbouring vec4s.
void join(uint t, uint team, uint lane) {
    if (lane == 0u) state[team] = vec2(largest, total);
    barrier();
    float most = NEVER, all = 0.0;
    for (uint s = lane; s < TEAMS; s += SUBGROUP) most = max(most, state[s].x);
    most = subgroup_most(most);
    for (uint s = lane; s < TEAMS; s += SUBGROUP) all += state[s].y * exp(state[s].x - most);
    float own = exp(largest - most) / subgroup_sum(all);
    for (uint turn = 0u; turn < TEAMS; turn += SLOTS) {
        if (team - team % SLOTS == turn)
            FLAT for (uint j = 0u; j < OWN; j++) {
                uint v = lane + j * SUBGROUP, at = team % SLOTS * 2u * HALF + v;
                vec4 low = vec4(sums[j * 4u], sums[j * 4u + 1u]) * own;
                vec4 high = vec4(sums[j * 4u + 2u], sums[j * 4u + 3u]) * own;
                if (v < VECS) {
                    slots[at] = turn == 0u ? low : slots[at] + low;
                    slots[at + HALF] = turn == 0u ? high : slots[at + HALF] + high;
                }
            }
        barrier();
    }
    for (uint n = t; n < RANK / 4u; n += WORKGROUP) {
        vec4 v = vec4(0.0);
        for (uint s = 0u; s < SLOTS; s++) v += slots[s * 2u * HALF + (n & 1u) * HALF + n / 2u];
        quantize_x(n, v);
    }
    barrier();
}
