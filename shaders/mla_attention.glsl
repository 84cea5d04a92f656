// Attention over the latent cache: all heads see the same rows of RANK + ROT values, of which the
// first RANK are the values too. A workgroup takes HEADS heads of one token and some positions,
// TILE rows at a time in shared memory; an invocation keeps the sums of one or more pairs of latent
// values for all of its heads. The including shader declares q, k and `position(row, i)`.
//
// spec: 0 workgroup, 1 HEADS, 2 RANK, 3 ROT, 4 TILE, 5 TOGETHER (divides TILE);
// HEADS * TILE <= workgroup
// Shared memory: 4 * (HEADS * (RANK + ROT + 8 + TILE + 3 + TOGETHER * workgroup) + TILE * row words)

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint HEADS = 1u;
layout(constant_id = 2) const uint RANK = 64u;
layout(constant_id = 3) const uint ROT = 32u;
layout(constant_id = 4) const uint TILE = 4u;
layout(constant_id = 5) const uint TOGETHER = 1u;

const uint WIDTH = RANK + ROT;
const uint PITCH = WIDTH / 2u + 4u;  // pairs; heads begin in different banks
const uint PAIRS = (RANK / 2u + WORKGROUP - 1u) / WORKGROUP;
const uint SPLIT = WORKGROUP / (TILE / TOGETHER);
const float NEVER = -1e30;
#ifdef KV16
const uint WORDS = WIDTH / 2u;
#else
const uint WORDS = WIDTH;
#endif

shared vec2 query[HEADS * PITCH];
shared uint tile[TILE * WORDS];
shared float score[HEADS * TILE], partial[HEADS * TOGETHER * WORKGROUP];
shared float most[HEADS], shrink[HEADS], total[HEADS];

vec2 sums[HEADS * PAIRS];

// Pair i of row r of the tile
vec2 cached(uint r, uint i) {
#ifdef KV16
    return unpackHalf2x16(tile[r * WORDS + i]);
#else
    return uintBitsToFloat(uvec2(tile[r * WORDS + 2u * i], tile[r * WORDS + 2u * i + 1u]));
#endif
}

void begin(uint token, uint first, uint heads, uint t) {
    for (uint e = t; e < HEADS * (WIDTH / 2u); e += WORKGROUP) {
        uint head = min(first + e / (WIDTH / 2u), heads - 1u), i = e % (WIDTH / 2u);
        uint at = (token * heads + head) * WIDTH + 2u * i;
        query[e / (WIDTH / 2u) * PITCH + i] = vec2(q[at], q[at + 1u]) * p.scale;
    }
    for (uint h = t; h < HEADS; h += WORKGROUP) {
        most[h] = NEVER;
        total[h] = 0.0;
    }
    FLAT for (uint i = 0u; i < HEADS * PAIRS; i++) sums[i] = vec2(0.0);
}

// Teams of SPLIT invocations take TOGETHER rows each, with all heads: what is loaded serves
// HEADS * TOGETHER products.
void scores(uint count, uint t) {
    uint team = t / SPLIT, r0 = team * TOGETHER;
    float sum[HEADS * TOGETHER];
    FLAT for (uint e = 0u; e < HEADS * TOGETHER; e++) sum[e] = 0.0;
    if (r0 < count)
        for (uint i = t % SPLIT; i < WIDTH / 2u; i += SPLIT) {
            vec2 key[TOGETHER];
            FLAT for (uint u = 0u; u < TOGETHER; u++) key[u] = cached(r0 + u, i);
            FLAT for (uint h = 0u; h < HEADS; h++) {
                vec2 own = query[h * PITCH + i];
                FLAT for (uint u = 0u; u < TOGETHER; u++)
                    sum[h * TOGETHER + u] += dot(own, key[u]);
            }
        }
    FLAT for (uint e = 0u; e < HEADS * TOGETHER; e++) partial[e * WORKGROUP + t] = sum[e];
    barrier();
    if (t < HEADS * TILE) {
        uint r = t / HEADS, e = t % HEADS * TOGETHER + r % TOGETHER;
        float total = 0.0;
        for (uint i = 0u; i < SPLIT; i++)  // from different lanes on: from different banks
            total += partial[e * WORKGROUP + r / TOGETHER * SPLIT + (i + t) % SPLIT];
        score[t] = r < count ? total : NEVER;
    }
    barrier();
}

// Scores to weights, relative to the largest so far
void soften(uint count, uint t) {
    if (t < HEADS) {
        float largest = most[t];
        for (uint r = 0u; r < count; r++) largest = max(largest, score[r * HEADS + t]);
        shrink[t] = exp(most[t] - largest);
        most[t] = largest;
    }
    barrier();
    if (t < HEADS * TILE)
        score[t] = t / HEADS < count ? exp(score[t] - most[t % HEADS]) : 0.0;
    barrier();
    if (t < HEADS) {
        float sum = 0.0;
        for (uint r = 0u; r < count; r++) sum += score[r * HEADS + t];
        total[t] = total[t] * shrink[t] + sum;
    }
}

void gather(uint count, uint t) {
    FLAT for (uint h = 0u; h < HEADS; h++)
        FLAT for (uint j = 0u; j < PAIRS; j++) sums[h * PAIRS + j] *= shrink[h];
    for (uint r = 0u; r < count; r++) {
        vec2 v[PAIRS];
        FLAT for (uint j = 0u; j < PAIRS; j++)
            v[j] = cached(r, min(t + j * WORKGROUP, RANK / 2u - 1u));
        FLAT for (uint h = 0u; h < HEADS; h++)
            FLAT for (uint j = 0u; j < PAIRS; j++)
                sums[h * PAIRS + j] += score[r * HEADS + h] * v[j];
    }
}

// The places `first` … `stop` - 1 of the token's positions, for HEADS heads from `head` on
void attend(uint token, uint head, uint heads, uint first, uint stop, uint t) {
    begin(token, head, heads, t);
    for (uint i0 = first; i0 < stop; i0 += TILE) {
        uint count = min(stop - i0, TILE);
        barrier();
        for (uint e = t; e < count * WORDS; e += WORKGROUP)
            tile[e] = k[p.k_base + position(token, i0 + e / WORDS) * WORDS + e % WORDS];
        barrier();
        scores(count, t);
        soften(count, t);
        gather(count, t);
    }
    barrier();
}
