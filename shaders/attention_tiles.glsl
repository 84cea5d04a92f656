// Decode attention in tiles of positions: all scores of a tile, then their softmax, then the
// weighted values, so that exponentials are taken once and sums are rescaled once per tile.
// KEY_LANES lanes share a key (KEY_PIECE values each); they exchange the partial scores of a quad
// of positions by halves, so that each ends with whole sums of its own. VALUE_LANES lanes share a
// value row (VALUE_PIECE values each). What comes next is on its way while a quad is computed.
// The stem declares qkv as vec4, and the caches (cache_read.glsl).

layout(constant_id = 3) const uint KEY_LANES = 8u;    // powers of two, at most the subgroup size
layout(constant_id = 4) const uint VALUE_LANES = 8u;
layout(constant_id = 5) const uint SUBGROUP = 8u;
layout(constant_id = 6) const uint TILE = 64u;        // positions, multiple of 4

#include "attention_tiles_read.glsl"

const uint QUAD = 4u;
const uint KEYS = (HEAD_DIM / KEY_PIECE + KEY_LANES - 1u) / KEY_LANES;  // pieces of a lane
const uint VALUES = (HEAD_DIM / VALUE_PIECE + VALUE_LANES - 1u) / VALUE_LANES;
const uint SUBGROUPS = WORKGROUP / SUBGROUP;
const uint SCORES = GROUP * TILE / 4u, HEADS = SUBGROUPS * GROUP * HEAD_DIM / 4u;
const uint ACCS = GROUP * VALUES * FOURS;
const uint KEY_SLOTS = WORKGROUP / KEY_LANES, VALUE_SLOTS = WORKGROUP / VALUE_LANES;

// scores (GROUP, TILE) of a tile; at the end the sums (SUBGROUPS, GROUP, HEAD_DIM)
shared vec4 pool[SCORES > HEADS ? SCORES : HEADS];
shared float most[GROUP], total[GROUP], shrink[GROUP];

#include "attention_tiles_scores.glsl"

// As key_column and LOAD_KEYS
uint value_column(uint head, uint lane, uint i) {
    return head + min((lane + i * VALUE_LANES) * VALUE_PIECE, HEAD_DIM - VALUE_PIECE);
}
#define LOAD_VALUES(vals, scales, quad) \
    FLAT for (uint u = 0u; u < QUAD; u++) { \
        uint start = row_start(true, V_TYPE, key_row(min(first + (quad) * QUAD + u, end - 1u))); \
        FLAT for (uint i = 0u; i < VALUES; i++) { \
            uint column = value_column(head, lane, i); \
            vals[u * VALUES + i] = value_piece(start, column); \
            scales[u * VALUES + i] = piece_scale(true, V_TYPE, start, column); \
        } \
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

// Quad h of the two that are loaded into the sums. A weight takes the scale of its value's group.
#define ADD_VALUES(h) \
    vec4 w[GROUP]; \
    FLAT for (uint g = 0u; g < GROUP; g++) w[g] = pool[g * (TILE / 4u) + own]; \
    FLAT for (uint u = 0u; u < QUAD; u++) \
        FLAT for (uint i = 0u; i < VALUES; i++) { \
            uint j = (h * QUAD + u) * VALUES + i; \
            float scale = V_TYPE == TYPE_F16 ? 1.0 \
                : scale_in(scales[j], value_column(head, lane, i)); \
            FLAT for (uint f = 0u; f < FOURS; f++) { \
                vec4 e = value_four(vals[j], f); \
                FLAT for (uint g = 0u; g < GROUP; g++) \
                    acc[(g * VALUES + i) * FOURS + f] += w[g][u] * scale * e; \
            } \
        }

// Leaves the sums of every subgroup over positions t0 … t1 - 1 in pool[], maxima in most[], sums
// of exponentials in total[].
void attend(uint t0, uint t1, uint first_head, uint kv_head, uint t) {
    uint lane = gl_SubgroupInvocationID % VALUE_LANES, slot = t / VALUE_LANES;
    vec4 acc[ACCS];
    FLAT for (uint i = 0u; i < ACCS; i++) acc[i] = vec4(0.0);
    for (uint g = t; g < GROUP; g += WORKGROUP) {
        most[g] = NEVER;
        total[g] = 0.0;
    }
    uint head = kv_head * HEAD_DIM;
    for (uint first = t0; first < t1; first += TILE) {
        uint end = min(first + TILE, t1);
        uvec2 vals[2u * QUAD * VALUES], ahead[QUAD * VALUES], later[QUAD * VALUES];
        uint scales[2u * QUAD * VALUES], ahead_scales[QUAD * VALUES], later_scales[QUAD * VALUES];
        score_tile(first, end, first_head, kv_head, t);
        LOAD_VALUES(ahead, ahead_scales, slot)
        LOAD_VALUES(later, later_scales, slot + VALUE_SLOTS)
        barrier();
        weigh_tile(first, end);
        barrier();
        FLAT for (uint g = 0u; g < GROUP; g++)
            FLAT for (uint i = 0u; i < VALUES * FOURS; i++)
                acc[g * VALUES * FOURS + i] *= shrink[g];
        for (uint quad = slot; first + quad * QUAD < end; quad += 2u * VALUE_SLOTS) {
            FLAT for (uint i = 0u; i < QUAD * VALUES; i++) {
                vals[i] = ahead[i];
                scales[i] = ahead_scales[i];
                vals[QUAD * VALUES + i] = later[i];
                scales[QUAD * VALUES + i] = later_scales[i];
            }
            if (first + (quad + 2u * VALUE_SLOTS) * QUAD < end) {
                LOAD_VALUES(ahead, ahead_scales, quad + 2u * VALUE_SLOTS)
                LOAD_VALUES(later, later_scales, quad + 3u * VALUE_SLOTS)
            }
            FLAT for (uint h = 0u; h < 2u; h++) {
                uint own = quad + h * VALUE_SLOTS;
                if (first + own * QUAD >= end) break;
                ADD_VALUES(h)
            }
        }
        barrier();
    }
    for (uint x = SUBGROUP / 2u; x >= VALUE_LANES; x /= 2u)
        FLAT for (uint i = 0u; i < ACCS; i++) {
            acc[i].x += subgroupShuffleXor(acc[i].x, x);
            acc[i].y += subgroupShuffleXor(acc[i].y, x);
            acc[i].z += subgroupShuffleXor(acc[i].z, x);
            acc[i].w += subgroupShuffleXor(acc[i].w, x);
        }
    if (gl_SubgroupInvocationID < VALUE_LANES)
        FLAT for (uint g = 0u; g < GROUP; g++)
            FLAT for (uint i = 0u; i < VALUES * FOURS; i++) {
                uint d = (lane + i / FOURS * VALUE_LANES) * FOURS + i % FOURS;
                if (d < HEAD_DIM / 4u)
                    pool[(gl_SubgroupID * GROUP + g) * (HEAD_DIM / 4u) + d]
                        = acc[g * VALUES * FOURS + i];
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
