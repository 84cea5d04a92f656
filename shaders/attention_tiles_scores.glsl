// Scores of a tile of positions for attention_tiles.glsl, which declares the constants. Keys in
// float16 are multiplied in float32, quantized ones as packed bytes with a query in integers.

#define LANES KEY_LANES
#include "exchange.glsl"
const uint SUMS_0 = GROUP * QUAD;
const uint SUMS_1 = HALVED(2u, SUMS_0);
const uint SUMS_2 = HALVED(4u, SUMS_1);
const uint SUMS_3 = HALVED(8u, SUMS_2);
const uint SUMS_4 = HALVED(16u, SUMS_3);
const uint SUMS_5 = HALVED(32u, SUMS_4);

// Column of a row that piece i of a lane begins at; lanes past the head's end take its last piece.
uint key_column(uint head, uint lane, uint i) {
    return head + min((lane + i * KEY_LANES) * KEY_PIECE, HEAD_DIM - KEY_PIECE);
}

// Keys of the quad of positions `quad`, and their scales; a macro, since arrays of constant size
// are no parameters.
#define LOAD_KEYS(keys, scales, quad) \
    FLAT for (uint u = 0u; u < QUAD; u++) { \
        uint start = row_start(false, K_TYPE, key_row(min(t0 + (quad) * QUAD + u, t1 - 1u))); \
        FLAT for (uint i = 0u; i < KEYS; i++) { \
            uint column = key_column(head, lane, i); \
            keys[u * KEYS + i] = key_piece(start, column); \
            scales[u * KEYS + i] = piece_scale(false, K_TYPE, start, column); \
        } \
    }

// What a lane adds to the scores of a quad: s[g * QUAD + u] of head g and position u.
#define SCORE_F16(s) \
    FLAT for (uint u = 0u; u < QUAD; u++) \
        FLAT for (uint i = 0u; i < KEYS; i++) { \
            uvec4 e = keys[u * KEYS + i]; \
            vec4 lo = vec4(unpackHalf2x16(e.x), unpackHalf2x16(e.y)); \
            vec4 hi = vec4(unpackHalf2x16(e.z), unpackHalf2x16(e.w)); \
            FLAT for (uint g = 0u; g < GROUP; g++) { \
                float sum = dot(q[(g * KEYS + i) * 2u], lo) \
                    + dot(q[(g * KEYS + i) * 2u + 1u], hi); \
                if (i == 0u) s[g * QUAD + u] = sum; \
                else s[g * QUAD + u] += sum; \
            } \
        }
#define SCORE_PACKED(s) \
    FLAT for (uint i = 0u; i < KEYS; i++) { \
        uint piece = lane + i * KEY_LANES, column = key_column(head, lane, i); \
        FLAT for (uint g = 0u; g < GROUP; g++) { \
            uint at = g * PIECES + min(piece, PIECES - 1u); \
            uvec4 high = query_high[at], low = query_low[at]; \
            vec2 scale = vec2(piece < PIECES ? query_scale[at].x : 0.0, query_scale[at].y); \
            FLAT for (uint u = 0u; u < QUAD; u++) { \
                uint j = u * KEYS + i; \
                float sum = packed_product(key_bytes(keys[j]), high, low, scale) \
                    * scale_in(scales[j], column); \
                if (i == 0u) s[g * QUAD + u] = sum; \
                else s[g * QUAD + u] += sum; \
            } \
        } \
    }

void score_tile(uint t0, uint t1, uint first_head, uint kv_head, uint t) {
    uint lane = gl_SubgroupInvocationID % KEY_LANES, slot = t / KEY_LANES;
    vec4 q[GROUP * KEYS * 2u];
    if (K_TYPE == TYPE_F16)
        FLAT for (uint i = 0u; i < KEYS; i++) {
            uint d = (lane + i * KEY_LANES) * 8u;
            float scale = d < HEAD_DIM ? p.scale : 0.0;  // lanes past the head's end add nothing
            FLAT for (uint g = 0u; g < GROUP; g++) {
                uint at = ((first_head + g) * HEAD_DIM + min(d, HEAD_DIM - 8u)) / 4u;
                q[(g * KEYS + i) * 2u] = qkv[at] * scale;
                q[(g * KEYS + i) * 2u + 1u] = qkv[at + 1u] * scale;
            }
        }
    uint head = kv_head * HEAD_DIM;
    uvec4 keys[QUAD * KEYS], ahead[QUAD * KEYS];
    uint scales[QUAD * KEYS], ahead_scales[QUAD * KEYS];
    LOAD_KEYS(ahead, ahead_scales, slot)
    if (K_TYPE != TYPE_F16) {  // while the first keys are on their way, for every tile anew
        quantize_query(first_head, t);
        barrier();
    }
    for (uint quad = slot; t0 + quad * QUAD < t1; quad += KEY_SLOTS) {
        FLAT for (uint i = 0u; i < QUAD * KEYS; i++) {
            keys[i] = ahead[i];
            scales[i] = ahead_scales[i];
        }
        if (t0 + (quad + KEY_SLOTS) * QUAD < t1) {
            LOAD_KEYS(ahead, ahead_scales, quad + KEY_SLOTS)
        }
        float s[SUMS_0];
        if (K_TYPE == TYPE_F16) {
            SCORE_F16(s)
        } else {
            SCORE_PACKED(s)
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
