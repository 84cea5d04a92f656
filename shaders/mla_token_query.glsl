// The queries of mla_token.glsl: plain (QUERY: made of the compressed one), then absorbed.

#ifdef QUERY
const uint Q_UNITS = Q_RANK / (32u * UNIT), Q_OWN = (Q_UNITS + QUERY_LANES - 1u) / QUERY_LANES;

shared vec4 query[HEAD / 4u];
shared float squares_of[TEAMS];
Unit q_units[QUERY_ROWS * Q_OWN];

// Rows of q_b from row q0 on; q_b lies behind v_b
void load_queries(uint head, uint q0, uint lane) {
    uint before = gl_NumWorkGroups.x * VALUE * V_UNITS;
    LOAD_UNITS(q_units, QUERY_ROWS, Q_OWN, Q_UNITS, QUERY_LANES,
               before + (head * HEAD + min(q0 + r, HEAD - 1u)) * Q_UNITS)
}

// The compressed query times its gain into x, its sums of squares for the norm
void compress(uint t, uint team, uint lane) {
    float squares = 0.0;
    for (uint n = t; n < Q_RANK / 4u; n += WORKGROUP) {
        vec4 v = a[n];
        squares += dot(v, v);
        quantize_x(n, v * uintBitsToFloat(h4[p.h_p0 / 4u + n]));
    }
    squares = subgroup_sum(squares);
    if (lane == 0u) squares_of[team] = squares;
    barrier();
}

// The head's rows of q_b times x
void make_query(uint head, uint t) {
    uint lane = t % QUERY_LANES, row0 = t / QUERY_LANES * QUERY_ROWS;
    float squares = 0.0;
    for (uint i = 0u; i < TEAMS; i++) squares += squares_of[i];
    float norm = inversesqrt(squares / float(Q_RANK) + p.eps);
    for (uint q0 = row0; q0 < HEAD; q0 += WORKGROUP / QUERY_LANES * QUERY_ROWS) {
        if (q0 != row0) load_queries(head, q0, lane);
        float sum[QUERY_ROWS];
        DOT_UNITS(sum, q_units, QUERY_ROWS, Q_OWN, Q_UNITS, QUERY_LANES)
        if (lane == 0u)
            FLAT for (uint r = 0u; r < QUERY_ROWS; r++)
                if (q0 + r < HEAD) query[(q0 + r) / 4u][(q0 + r) & 3u] = sum[r] * norm;
    }
}

vec4 query4(uint head, uint n) { return query[n]; }
#else
vec4 query4(uint head, uint n) { return x[head * (HEAD / 4u) + n]; }
#endif

// Vectors of a row of k_b, of a lane; sums that a lane holds after each exchange with another
const uint PIECES = (NOPE / 8u + LANES - 1u) / LANES, GROUPS = WORKGROUP / LANES;
const uint SUMS_1 = HALVED(2u, KEY_ROWS), SUMS_2 = HALVED(4u, SUMS_1), SUMS_3 = HALVED(8u, SUMS_2);
const uint SUMS_4 = HALVED(16u, SUMS_3), SUMS_5 = HALVED(32u, SUMS_4);
uvec4 kb_rows[KEY_ROWS * PIECES];

// Rows of k_b from r0 on that the invocation multiplies
void load_keys(uint head, uint r0, uint t) {
    uint lane = t % LANES;
    FLAT for (uint r = 0u; r < KEY_ROWS; r++) {
        uint row = head * RANK + min(r0 + t / LANES * KEY_ROWS + r, RANK - 1u);
        FLAT for (uint i = 0u; i < PIECES; i++)
            kb_rows[r * PIECES + i] = kb4[p.kb_p0 / 4u + row * (NOPE / 8u)
                + min(lane + i * LANES, NOPE / 8u - 1u)];
    }
}

vec4 own[PIECES * 2u];  // the lane's part of the plain query, times the scale of scores

float key_dot(uint r) {
    vec2 both = vec2(0.0);
    FLAT for (uint i = 0u; i < PIECES; i++) {
        uvec4 u = kb_rows[r * PIECES + i];
        both += unpackHalf2x16(u.x) * own[2u * i].xy + unpackHalf2x16(u.y) * own[2u * i].zw;
        both += unpackHalf2x16(u.z) * own[2u * i + 1u].xy;
        both += unpackHalf2x16(u.w) * own[2u * i + 1u].zw;
    }
    return both.x + both.y;
}

// The part of the query without position times k_b: what meets the latents
void absorb(uint head, uint t) {
    uint lane = t % LANES;
    FLAT for (uint i = 0u; i < PIECES; i++) {
        uint piece = lane + i * LANES, at = min(piece, NOPE / 8u - 1u) * 2u;
        float inside = piece < NOPE / 8u ? p.scale : 0.0;  // lanes past the row's end add nothing
        own[2u * i] = query4(head, at) * inside;
        own[2u * i + 1u] = query4(head, at + 1u) * inside;
    }
    for (uint pair = 0u; pair < RANK; pair += 2u * GROUPS * KEY_ROWS)
        FLAT for (uint part = 0u; part < 2u; part++) {  // the second's loads overlap the first
            uint r0 = pair + part * GROUPS * KEY_ROWS;
            if (r0 > 0u) load_keys(head, r0, t);
            float sum[KEY_ROWS];
            FLAT for (uint r = 0u; r < KEY_ROWS; r++) sum[r] = key_dot(r);
            uint first = 0u, row0 = r0 + t / LANES * KEY_ROWS;
            EXCHANGE(sum, KEY_ROWS, SUMS_1, (LANES / 2u))
            EXCHANGE(sum, SUMS_1, SUMS_2, (LANES / 4u))
            EXCHANGE(sum, SUMS_2, SUMS_3, (LANES / 8u))
            EXCHANGE(sum, SUMS_3, SUMS_4, (LANES / 16u))
            EXCHANGE(sum, SUMS_4, SUMS_5, (LANES / 32u))
            // not where a lower lane has the same sums
            if (KEY_ROWS < LANES && lane % (LANES / KEY_ROWS) != 0u) continue;
            FLAT for (uint i = 0u; i < SUMS_5; i++)
                if (row0 + first + i < RANK) absorbed[row0 + first + i] = sum[i];
        }
}

// The part of the query with position, turned, by one subgroup
void rotate_query(uint head, uint pos, uint lane) {
    for (uint i = lane; i < ROT / 2u; i += SUBGROUP) {
        vec4 four = query4(head, NOPE / 4u + i / 2u);
        vec2 v = turned(pos, i, (i & 1u) == 0u ? four.xy : four.zw) * p.scale;
        absorbed[RANK + 2u * i] = v.x;
        absorbed[RANK + 2u * i + 1u] = v.y;
    }
}
