// The queries of the mla_token family: plain (QUERY: made of the compressed one), then absorbed.
// Declared by the user: SCALE, by which queries are multiplied, ROWS_OF_QUERY, KEY_COLS (columns of
// k_b that the workgroup has), KEEP_ABSORBED(row, sum), which keeps a value of the absorbed query.

#ifdef QUERY
const uint Q_UNITS = Q_RANK / (32u * UNIT), Q_OWN = (Q_UNITS + QUERY_LANES - 1u) / QUERY_LANES;

shared vec4 query[ROWS_OF_QUERY / 4u];
shared float squares_of[TEAMS];
Unit q_units[QUERY_ROWS * Q_OWN];

// Of `count` rows of q_b, the first of which begins with unit `from`, those from q0 on
void load_queries(uint from, uint count, uint q0, uint lane) {
    LOAD_UNITS(q_units, QUERY_ROWS, Q_OWN, Q_UNITS, QUERY_LANES,
               from + min(q0 + r, count - 1u) * Q_UNITS)
}

vec4 input_values, input_gain;

// Values 4 n … of the compressed query and of its gain
void load_input(uint head, uint n) {
    uint at = min(n, Q_RANK / 4u - 1u);
    input_values = a[at];
    input_gain = uintBitsToFloat(h4[p.h_p0 / 4u + at]);
}

// The compressed query times its gain into x, its sums of squares for the norm
void compress(uint t, uint team, uint lane) {
    float squares = 0.0;
    for (uint n = t; n < Q_RANK / 4u; n += WORKGROUP) {
        if (n != t) load_input(0u, n);
        squares += dot(input_values, input_values);
        quantize_x(n, input_values * input_gain);
    }
    squares = subgroup_sum(squares);
    if (lane == 0u) squares_of[team] = squares;
    barrier();
}

// These rows times x
void make_query(uint from, uint count, uint t) {
    uint lane = t % QUERY_LANES, row0 = t / QUERY_LANES * QUERY_ROWS;
    float squares = 0.0;
    for (uint i = 0u; i < TEAMS; i++) squares += squares_of[i];
    float norm = inversesqrt(squares / float(Q_RANK) + p.eps);
    for (uint q0 = row0; q0 < count; q0 += WORKGROUP / QUERY_LANES * QUERY_ROWS) {
        if (q0 != row0) load_queries(from, count, q0, lane);
        float sum[QUERY_ROWS];
        DOT_UNITS(sum, q_units, QUERY_ROWS, Q_OWN, Q_UNITS, QUERY_LANES)
        if (lane == 0u)
            FLAT for (uint r = 0u; r < QUERY_ROWS; r++)
                if (q0 + r < count) query[(q0 + r) / 4u][(q0 + r) & 3u] = sum[r] * norm;
    }
}

vec4 query4(uint head, uint n) { return query[n]; }
#else
vec4 input_values;

vec4 query4(uint head, uint n) { return x[head * (HEAD / 4u) + n]; }

// Values 4 n … of the plain query without position
void load_input(uint head, uint n) { input_values = query4(head, min(n, NOPE / 4u - 1u)); }
#endif

const uint K_CHUNKS = KEY_COLS / 32u, K_OWN = (K_CHUNKS + KEY_LANES - 1u) / KEY_LANES;

struct Key { uvec4 a; uvec4 b; float d; };  // 32 values of k_b, Q8_0
Key k_chunks[KEY_ROWS * K_OWN];

// Rows of k_b from r0 on, KEY_COLS of their columns; `from`: the chunk of row 0
void load_keys(uint from, uint r0, uint lane) {
    FLAT for (uint r = 0u; r < KEY_ROWS; r++)
        FLAT for (uint i = 0u; i < K_OWN; i++) {
            uint g = from + min(r0 + r, RANK - 1u) * (NOPE / 32u)
                + min(lane + i * KEY_LANES, K_CHUNKS - 1u);
            uint at = p.kb_p0 / 4u + g * 2u;
            vec2 pair = unpackHalf2x16(kb[p.kb_p1 + g / 2u]);
            k_chunks[r * K_OWN + i] = Key(kb4[at], kb4[at + 1u], (g & 1u) == 0u ? pair.x : pair.y);
        }
}

// The plain query without position into x, times the scale of scores
void quantize_query(uint head, uint t) {
    for (uint n = t; n < KEY_COLS / 4u; n += WORKGROUP) {
#ifdef QUERY
        quantize_x(n, query[n] * SCALE);
#else
        if (n != t) load_input(head, n);
        quantize_x(n, input_values * SCALE);
#endif
    }
    barrier();
}

// These columns of k_b times x: what meets the latents
void absorb(uint from, uint t) {
    uint lane = t % KEY_LANES, row0 = t / KEY_LANES * KEY_ROWS;
    for (uint r0 = row0; r0 < RANK; r0 += WORKGROUP / KEY_LANES * KEY_ROWS) {
        if (r0 != row0) load_keys(from, r0, lane);
        float sum[KEY_ROWS];
        FLAT for (uint r = 0u; r < KEY_ROWS; r++) sum[r] = 0.0;
        FLAT for (uint i = 0u; i < K_OWN; i++) {
            uint c = lane + i * KEY_LANES, at = min(c, K_CHUNKS - 1u) * 2u;
            uvec4 xa = xq[at], xb = xq[at + 1u];
            vec2 scales = vec2(xs[at].x, xs[at + 1u].x) * (c < K_CHUNKS ? 1.0 : 0.0);
            FLAT for (uint r = 0u; r < KEY_ROWS; r++) {
                Key k = k_chunks[r * K_OWN + i];
                sum[r] += k.d * dot(vec2(dot16(k.a, xa), dot16(k.b, xb)), scales);
            }
        }
        for (uint d = KEY_LANES / 2u; d > 0u; d /= 2u)
            FLAT for (uint r = 0u; r < KEY_ROWS; r++) sum[r] += subgroupShuffleXor(sum[r], d);
        if (lane == 0u)
            FLAT for (uint r = 0u; r < KEY_ROWS; r++)
                if (r0 + r < RANK) KEEP_ABSORBED(r0 + r, sum[r]);
    }
}

// The part of the query with position, turned, by `count` invocations; `first`: its first vector
void rotate_query(uint head, uint first, uint pos, uint t, uint count) {
    for (uint i = t; i < ROT / 2u; i += count) {
        vec2 v = turned(pos, i, pair_of(query4(head, first + i / 2u), i)) * SCALE;
        KEEP_ABSORBED(RANK + 2u * i, v.x);
        KEEP_ABSORBED(RANK + 2u * i + 1u, v.y);
    }
}
