// Attention of one head over a short context of float16 keys and values by a workgroup. LANES lanes
// share a position, UNROLL of which are on their way at once with their values; each such group of
// lanes has a softmax of its own. Those of a subgroup are joined by shuffles, subgroups in shared
// memory: one barrier.
// The shader declares HEAD_DIM (a multiple of 16), LANES (a power of two, at most the subgroup
// size), UNROLL, RING, qkv[] of vec4, the caches k and v, p.scale, p.softcap; narrow_vector.glsl
// is there.

#include "cache.glsl"
#include "softcap.glsl"

const float NEVER = -1e30;
const uint VECTORS = HEAD_DIM / 8u;                  // of 16 bytes, in a head's row
const uint PIECES = (VECTORS + LANES - 1u) / LANES;  // vectors of a lane
const uint STREAMS = WORKGROUP / LANES;
const uint FLIGHT = UNROLL * PIECES;

shared vec4 sums[TEAMS * VECTORS * 2u];
shared vec2 states[TEAMS];  // largest score, sum of exponentials

vec4 query[2u * PIECES], acc[2u * PIECES];
uint column[PIECES];
float high, weight;

float product(uvec4 e, vec4 low, vec4 upper) {
    return dot(low, vec4(unpackHalf2x16(e.x), unpackHalf2x16(e.y)))
        + dot(upper, vec4(unpackHalf2x16(e.z), unpackHalf2x16(e.w)));
}

void load_query(uint head, uint lane) {
    uint kv_head = head / (p.n_head / p.n_head_kv);
    FLAT for (uint i = 0u; i < PIECES; i++) {
        uint piece = min(lane + i * LANES, VECTORS - 1u);
        float used = lane + i * LANES < VECTORS ? p.scale : 0.0;
        column[i] = kv_head * VECTORS + piece;
        query[2u * i] = used * qkv[(head * VECTORS + piece) * 2u];
        query[2u * i + 1u] = used * qkv[(head * VECTORS + piece) * 2u + 1u];
        acc[2u * i] = acc[2u * i + 1u] = vec4(0.0);
    }
    high = NEVER;
    weight = 0.0;
}

uvec4 keys[FLIGHT], values[FLIGHT];

// Those of UNROLL positions, STREAMS apart; of `most` and later ones nothing is loaded
void load_some(uint first, uint most) {
    uint width = p.n_head_kv * VECTORS;
    FLAT for (uint u = 0u; u < UNROLL; u++) {
        bool there = first + u * STREAMS < most;
        uint row = key_row(first + u * STREAMS) * width;
        FLAT for (uint i = 0u; i < PIECES; i++) {
            keys[u * PIECES + i] = values[u * PIECES + i] = uvec4(0u);
            if (there) keys[u * PIECES + i] = k[p.k_base / 4u + row + column[i]];
            if (there) values[u * PIECES + i] = v[p.v_base / 4u + row + column[i]];
        }
    }
}

// Those of them that are below len, into the softmax
void attend_some(uint first, uint len) {
    float score[UNROLL];
    FLAT for (uint u = 0u; u < UNROLL; u++) {
        score[u] = 0.0;
        FLAT for (uint i = 0u; i < PIECES; i++)
            score[u] += product(keys[u * PIECES + i], query[2u * i], query[2u * i + 1u]);
    }
    for (uint d = LANES / 2u; d > 0u; d /= 2u)
        FLAT for (uint u = 0u; u < UNROLL; u++) score[u] += subgroupShuffleXor(score[u], d);
    float before = high;
    FLAT for (uint u = 0u; u < UNROLL; u++) {
        if (p.softcap != 0.0) score[u] = capped(score[u], p.softcap);
        if (first + u * STREAMS >= len) score[u] = NEVER;
        high = max(high, score[u]);
    }
    float less = exp(before - high);
    weight *= less;
    FLAT for (uint i = 0u; i < 2u * PIECES; i++) acc[i] *= less;
    FLAT for (uint u = 0u; u < UNROLL; u++) {
        float e = exp(score[u] - high);
        weight += e;
        FLAT for (uint i = 0u; i < PIECES; i++) {
            // rows that nobody has written may hold anything
            uvec4 x = first + u * STREAMS < len ? values[u * PIECES + i] : uvec4(0u);
            acc[2u * i] += e * vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
            acc[2u * i + 1u] += e * vec4(unpackHalf2x16(x.z), unpackHalf2x16(x.w));
        }
    }
}

// What a subgroup's groups of lanes have found, into shared memory
void join_streams(uint team, uint lane) {
    for (uint d = LANES; d < SUBGROUP; d *= 2u) {
        float most = max(high, subgroupShuffleXor(high, d)), less = exp(high - most);
        high = most;
        weight *= less;
        weight += subgroupShuffleXor(weight, d);
        FLAT for (uint i = 0u; i < 2u * PIECES; i++) {
            acc[i] *= less;
            acc[i] += subgroupShuffleXor(acc[i], d);
        }
    }
    if (lane == 0u) states[team] = vec2(high, weight);
    if (lane >= LANES) return;
    FLAT for (uint i = 0u; i < PIECES; i++) {
        uint piece = lane + i * LANES;
        if (piece >= VECTORS) break;
        sums[(team * VECTORS + piece) * 2u] = acc[2u * i];
        sums[(team * VECTORS + piece) * 2u + 1u] = acc[2u * i + 1u];
    }
}

// Positions start … len - 1; behind a barrier, `joined` has the result. Those of the first pass have
// been loaded if `loaded`
void attend(uint start, uint len, uint t, bool loaded) {
    for (uint first = start + t / LANES; first < len; first += STREAMS * UNROLL) {
        if (!loaded) load_some(first, len);
        loaded = false;
        attend_some(first, len);
    }
    join_streams(t / SUBGROUP, t % SUBGROUP);
}

// Values 4 n … 4 n + 3 of the head
vec4 joined(uint n) {
    float most = NEVER, all = 0.0;
    vec4 sum = vec4(0.0);
    for (uint i = 0u; i < TEAMS; i++) most = max(most, states[i].x);
    for (uint i = 0u; i < TEAMS; i++) {
        float less = exp(states[i].x - most);
        all += less * states[i].y;
        sum += less * sums[i * VECTORS * 2u + n];
    }
    return sum / all;
}
