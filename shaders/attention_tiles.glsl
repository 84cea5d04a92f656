// Decode attention in tiles of positions: all scores of a tile, then their softmax, then the
// weighted values, so that exponentials are taken once and sums are rescaled once per tile.
// KEY_LANES lanes share a key (8 values each); they exchange the partial scores of a quad of
// positions by halves, so that each ends with whole sums of its own. VALUE_LANES lanes share a
// value row (4 values each). What comes next is on its way while a quad is computed.
// The stem declares qkv as vec4, and k and v as caches in float16.

layout(constant_id = 3) const uint KEY_LANES = 8u;    // powers of two, at most the subgroup size
layout(constant_id = 4) const uint VALUE_LANES = 8u;
layout(constant_id = 5) const uint SUBGROUP = 8u;
layout(constant_id = 6) const uint TILE = 64u;        // positions, multiple of 4 * WORKGROUP / lanes

const uint QUAD = 4u;
const uint KEYS = (HEAD_DIM / 8u + KEY_LANES - 1u) / KEY_LANES;       // 16-byte pieces of a lane
const uint VALUES = (HEAD_DIM / 4u + VALUE_LANES - 1u) / VALUE_LANES; // 8-byte pieces of a lane
const uint SUBGROUPS = WORKGROUP / SUBGROUP;
const uint SCORES = GROUP * TILE / 4u, HEADS = SUBGROUPS * GROUP * HEAD_DIM / 4u;
const uint KEY_SLOTS = WORKGROUP / KEY_LANES, VALUE_SLOTS = WORKGROUP / VALUE_LANES;

// scores (GROUP, TILE) of a tile; at the end the sums (SUBGROUPS, GROUP, HEAD_DIM)
shared vec4 pool[SCORES > HEADS ? SCORES : HEADS];
shared float most[GROUP], total[GROUP], shrink[GROUP];

#define LANES KEY_LANES
#include "exchange.glsl"
const uint SUMS_0 = GROUP * QUAD;
const uint SUMS_1 = HALVED(2u, SUMS_0);
const uint SUMS_2 = HALVED(4u, SUMS_1);
const uint SUMS_3 = HALVED(8u, SUMS_2);
const uint SUMS_4 = HALVED(16u, SUMS_3);
const uint SUMS_5 = HALVED(32u, SUMS_4);

// Keys and values of the quad of positions `quad`; macros, since arrays of constant size are no
// parameters.
#define LOAD_KEYS(keys, quad) \
    FLAT for (uint u = 0u; u < QUAD; u++) { \
        uint at = key_row(min(t0 + (quad) * QUAD + u, t1 - 1u)) * row + head; \
        FLAT for (uint i = 0u; i < KEYS; i++) \
            keys[u * KEYS + i] = k[(at + min((lane + i * KEY_LANES) * 8u, HEAD_DIM - 8u)) / 8u]; \
    }
#define LOAD_VALUES(vals, quad) \
    FLAT for (uint u = 0u; u < QUAD; u++) { \
        uint at = key_row(min(first + (quad) * QUAD + u, end - 1u)) * row + head; \
        FLAT for (uint i = 0u; i < VALUES; i++) { \
            uint d = min((lane + i * VALUE_LANES) * 4u, HEAD_DIM - 4u); \
            vals[u * VALUES + i] = v2[(at + d) / 4u]; \
        } \
    }

void score_tile(uint t0, uint t1, uint first_head, uint kv_head, uint t) {
    uint lane = gl_SubgroupInvocationID % KEY_LANES, slot = t / KEY_LANES;
    vec4 q[GROUP * KEYS * 2u];
    FLAT for (uint i = 0u; i < KEYS; i++) {
        uint d = (lane + i * KEY_LANES) * 8u;
        float scale = d < HEAD_DIM ? p.scale : 0.0;  // lanes past the head's end add nothing
        FLAT for (uint g = 0u; g < GROUP; g++) {
            uint at = ((first_head + g) * HEAD_DIM + min(d, HEAD_DIM - 8u)) / 4u;
            q[(g * KEYS + i) * 2u] = qkv[at] * scale;
            q[(g * KEYS + i) * 2u + 1u] = qkv[at + 1u] * scale;
        }
    }
    uint row = p.n_head_kv * HEAD_DIM, head = p.k_base * 2u + kv_head * HEAD_DIM;
    uvec4 keys[QUAD * KEYS], ahead[QUAD * KEYS];
    LOAD_KEYS(ahead, slot)
    for (uint quad = slot; t0 + quad * QUAD < t1; quad += KEY_SLOTS) {
        FLAT for (uint i = 0u; i < QUAD * KEYS; i++) keys[i] = ahead[i];
        if (t0 + (quad + KEY_SLOTS) * QUAD < t1) {
            LOAD_KEYS(ahead, quad + KEY_SLOTS)
        }
        float s[SUMS_0];
        FLAT for (uint u = 0u; u < QUAD; u++)
            FLAT for (uint i = 0u; i < KEYS; i++) {
                uvec4 e = keys[u * KEYS + i];
                vec4 lo = vec4(unpackHalf2x16(e.x), unpackHalf2x16(e.y));
                vec4 hi = vec4(unpackHalf2x16(e.z), unpackHalf2x16(e.w));
                FLAT for (uint g = 0u; g < GROUP; g++) {
                    float sum = dot(q[(g * KEYS + i) * 2u], lo)
                        + dot(q[(g * KEYS + i) * 2u + 1u], hi);
                    if (i == 0u) s[g * QUAD + u] = sum;
                    else s[g * QUAD + u] += sum;
                }
            }
        uint first = 0u;
        EXCHANGE(s, SUMS_0, SUMS_1, (KEY_LANES / 2u))
        EXCHANGE(s, SUMS_1, SUMS_2, (KEY_LANES / 4u))
        EXCHANGE(s, SUMS_2, SUMS_3, (KEY_LANES / 8u))
        EXCHANGE(s, SUMS_3, SUMS_4, (KEY_LANES / 16u))
        EXCHANGE(s, SUMS_4, SUMS_5, (KEY_LANES / 32u))
        FLAT for (uint i = 0u; i < SUMS_5; i++) {
            uint g = (first + i) / QUAD, u = (first + i) % QUAD;
            if (p.softcap > 0.0) s[i] = capped(s[i], p.softcap);
            pool[g * (TILE / 4u) + quad][u] = t0 + quad * QUAD + u < t1 ? s[i] : NEVER;
        }
    }
}

// Scores to weights exp(score - largest so far); `shrink`: what the sums so far are worth.
void weigh_tile(uint t0, uint t1) {
    uint quads = (t1 - t0 + 3u) / 4u;
    for (uint g = gl_SubgroupID; g < GROUP; g += SUBGROUPS) {
        float high = most[g], before = high, sum = 0.0;
        for (uint i = gl_SubgroupInvocationID; i < quads; i += SUBGROUP) {
            vec4 s = pool[g * (TILE / 4u) + i];
            high = max(max(max(s.x, s.y), max(s.z, s.w)), high);
        }
        for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) high = max(high, subgroupShuffleXor(high, d));
        for (uint i = gl_SubgroupInvocationID; i < quads; i += SUBGROUP) {
            vec4 e = exp(pool[g * (TILE / 4u) + i] - high);
            pool[g * (TILE / 4u) + i] = e;
            sum += e.x + e.y + e.z + e.w;
        }
        for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) sum += subgroupShuffleXor(sum, d);
        if (gl_SubgroupInvocationID == 0u) {
            float less = exp(before - high);
            shrink[g] = less;
            most[g] = high;
            total[g] = total[g] * less + sum;
        }
    }
}

// Leaves the sums of every subgroup over positions t0 … t1 - 1 in pool[], maxima in most[], sums
// of exponentials in total[].
void attend(uint t0, uint t1, uint first_head, uint kv_head, uint t) {
    uint lane = gl_SubgroupInvocationID % VALUE_LANES, slot = t / VALUE_LANES;
    vec4 acc[GROUP * VALUES];
    FLAT for (uint i = 0u; i < GROUP * VALUES; i++) acc[i] = vec4(0.0);
    for (uint g = t; g < GROUP; g += WORKGROUP) {
        most[g] = NEVER;
        total[g] = 0.0;
    }
    uint row = p.n_head_kv * HEAD_DIM, head = p.v_base * 2u + kv_head * HEAD_DIM;
    for (uint first = t0; first < t1; first += TILE) {
        uint end = min(first + TILE, t1);
        uvec2 vals[2u * QUAD * VALUES], ahead[QUAD * VALUES], later[QUAD * VALUES];
        score_tile(first, end, first_head, kv_head, t);
        LOAD_VALUES(ahead, slot)
        LOAD_VALUES(later, slot + VALUE_SLOTS)
        barrier();
        weigh_tile(first, end);
        barrier();
        FLAT for (uint g = 0u; g < GROUP; g++)
            FLAT for (uint i = 0u; i < VALUES; i++) acc[g * VALUES + i] *= shrink[g];
        for (uint quad = slot; first + quad * QUAD < end; quad += 2u * VALUE_SLOTS) {
            FLAT for (uint i = 0u; i < QUAD * VALUES; i++) {
                vals[i] = ahead[i];
                vals[QUAD * VALUES + i] = later[i];
            }
            if (first + (quad + 2u * VALUE_SLOTS) * QUAD < end) {
                LOAD_VALUES(ahead, quad + 2u * VALUE_SLOTS)
                LOAD_VALUES(later, quad + 3u * VALUE_SLOTS)
            }
            FLAT for (uint h = 0u; h < 2u; h++) {
                uint own = quad + h * VALUE_SLOTS;
                if (first + own * QUAD >= end) break;
                FLAT for (uint g = 0u; g < GROUP; g++) {
                    vec4 w = pool[g * (TILE / 4u) + own];
                    FLAT for (uint u = 0u; u < QUAD; u++)
                        FLAT for (uint i = 0u; i < VALUES; i++) {
                            uvec2 e = vals[(h * QUAD + u) * VALUES + i];
                            acc[g * VALUES + i] += w[u]
                                * vec4(unpackHalf2x16(e.x), unpackHalf2x16(e.y));
                        }
                }
            }
        }
        barrier();
    }
    for (uint x = SUBGROUP / 2u; x >= VALUE_LANES; x /= 2u)
        FLAT for (uint i = 0u; i < GROUP * VALUES; i++) {
            acc[i].x += subgroupShuffleXor(acc[i].x, x);
            acc[i].y += subgroupShuffleXor(acc[i].y, x);
            acc[i].z += subgroupShuffleXor(acc[i].z, x);
            acc[i].w += subgroupShuffleXor(acc[i].w, x);
        }
    if (gl_SubgroupInvocationID < VALUE_LANES)
        FLAT for (uint g = 0u; g < GROUP; g++)
            FLAT for (uint i = 0u; i < VALUES; i++) {
                uint d = lane + i * VALUE_LANES;
                if (d < HEAD_DIM / 4u)
                    pool[(gl_SubgroupID * GROUP + g) * (HEAD_DIM / 4u) + d] = acc[g * VALUES + i];
            }
    barrier();
}

// Value e (head e / HEAD_DIM of the group) summed over all subgroups
float joined(uint e) {
    float sum = 0.0;
    FLAT for (uint j = 0u; j < SUBGROUPS; j++)
        sum += pool[(j * GROUP * HEAD_DIM + e) / 4u][e % 4u];
    return sum;
}
