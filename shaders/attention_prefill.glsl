// Body of attention_prefill.comp and attention_prefill_sinks.comp. SINKS: a score per head that takes
// part in the softmax and has no value (gpt-oss).
const float NEVER = -1e30;
const uint DIM = HEAD_DIM / 4u;  // vectors of 4 values per head
const uint PITCH = DIM + 1u;
const uint STRIDE = WORKGROUP / BT, SCORES = BQ / STRIDE + (BQ % STRIDE == 0u ? 0u : 1u);
const uint PARTS = WORKGROUP / BQ < BT ? WORKGROUP / BQ : BT;  // lanes that share a softmax row
// outputs: lane t has vector t % DIM of the queries t / DIM + i * TEAMS
const uint TEAMS = WORKGROUP / DIM > 0u ? WORKGROUP / DIM : 1u;
const uint OUTS = (BQ + TEAMS - 1u) / TEAMS;

shared vec4 qs[BQ * DIM];
shared vec4 kv[BT * PITCH];
shared float ps[BQ * BT];
shared float best[BQ], total[BQ], shrink[BQ];
shared float part[BQ * PARTS];

#include "cache_read.glsl"
#include "softcap.glsl"

// Positions [base, base + BT) of one head into kv[]; those from `limit` on are zero
void load_tile(bool values, uint base, uint limit, uint kv_head) {
    for (uint e = gl_LocalInvocationID.x; e < BT * DIM; e += WORKGROUP) {
        uint j = e / DIM, column = (kv_head * DIM + e % DIM) * 4u;
        vec4 u = vec4(0.0);
        if (base + j < limit) {
            uint row = key_row(base + j);
            u = values ? val_four(row, column) : key_four(row, column);
        }
        kv[j * PITCH + e % DIM] = u;
    }
}

// Lane t: position t % BT for the queries t / BT + i * STRIDE
void score(uint base, uint first_own) {
    uint j = gl_LocalInvocationID.x % BT, q0 = gl_LocalInvocationID.x / BT;
    vec4 sums[SCORES];
    [[unroll]] for (uint i = 0u; i < SCORES; i++) sums[i] = vec4(0.0);
    for (uint d = 0u; d < DIM; d++) {
        vec4 key = kv[j * PITCH + d];
        [[unroll]] for (uint i = 0u; i < SCORES; i++)
            sums[i] = fma(qs[min(q0 + i * STRIDE, BQ - 1u) * DIM + d], key, sums[i]);
    }
    [[unroll]] for (uint i = 0u; i < SCORES; i++) {
        uint q = q0 + i * STRIDE, own = first_own + q;
        bool seen = base + j <= own && (p.window == 0u || base + j + p.window > own);
        float s = (sums[i].x + sums[i].y) + (sums[i].z + sums[i].w);
        if (p.softcap > 0.0) s = capped(s, p.softcap);
        if (q < BQ) ps[q * BT + j] = seen ? s : NEVER;
    }
}

// Scores to exp(score - largest so far), PARTS lanes per query
void soften() {
    uint q = gl_LocalInvocationID.x / PARTS, first = gl_LocalInvocationID.x % PARTS;
    bool real = q < BQ;
    float next = NEVER, sum = 0.0;
    if (real) {
        for (uint j = first; j < BT; j += PARTS) next = max(next, ps[q * BT + j]);
        part[q * PARTS + first] = next;
    }
    barrier();
    if (real) {
        next = best[q];
        for (uint i = 0u; i < PARTS; i++) next = max(next, part[q * PARTS + i]);
        for (uint j = first; j < BT; j += PARTS) {
            float s = ps[q * BT + j], e = s == NEVER ? 0.0 : exp(s - next);
            ps[q * BT + j] = e;
            sum += e;
        }
    }
    barrier();
    if (real) part[q * PARTS + first] = sum;
    barrier();
    if (real && first == 0u) {
        shrink[q] = exp(best[q] - next);
        sum = 0.0;
        for (uint i = 0u; i < PARTS; i++) sum += part[q * PARTS + i];
        best[q] = next;
        total[q] = total[q] * shrink[q] + sum;
    }
}

// What the sum of a query's weighted values is multiplied by
float share(uint q, uint head) {
#ifdef SINKS
    float sink = uintBitsToFloat(sinks[p.sinks_p0 + head]), most = max(best[q], sink);
    float shrunk = exp(best[q] - most);
    return shrunk / (total[q] * shrunk + exp(sink - most));
#else
    return 1.0 / total[q];
#endif
}

void main() {
    uint n = step[STEP_N], pos = step[STEP_POS], t = gl_LocalInvocationID.x;
    uint q0 = gl_WorkGroupID.x * BQ, head = gl_WorkGroupID.y;
    if (step[STEP_STOP] != 0u || q0 >= n) return;
    uint kv_head = head / (p.n_head / p.n_head_kv);
    uint stride = (p.n_head + 2u * p.n_head_kv) * DIM;
    for (uint e = t; e < BQ * DIM; e += WORKGROUP)
        qs[e] = qkv[min(q0 + e / DIM, n - 1u) * stride + head * DIM + e % DIM] * p.scale;
    if (t < BQ) { best[t] = NEVER; total[t] = 0.0; }
    uint team = t / DIM, d = t % DIM;
    vec4 outs[OUTS];
    [[unroll]] for (uint i = 0u; i < OUTS; i++) outs[i] = vec4(0.0);
    uint limit = pos + min(q0 + BQ, n);  // one past the last position that any row sees
    uint first = p.window != 0u && pos + q0 + 1u > p.window ? pos + q0 + 1u - p.window : 0u;
    for (uint base = first; base < limit; base += BT) {
        barrier();
        load_tile(false, base, limit, kv_head);
        barrier();
        score(base, pos + q0);
        barrier();
        load_tile(true, base, limit, kv_head);
        soften();
        barrier();
        if (team >= TEAMS) continue;
        [[unroll]] for (uint i = 0u; i < OUTS; i++) outs[i] *= shrink[min(team + i * TEAMS, BQ - 1u)];
        for (uint j = 0u; j < BT; j++) {
            vec4 value = kv[j * PITCH + d];
            [[unroll]] for (uint i = 0u; i < OUTS; i++)
                outs[i] = fma(vec4(ps[min(team + i * TEAMS, BQ - 1u) * BT + j]), value, outs[i]);
        }
    }
    if (team >= TEAMS) return;
    [[unroll]] for (uint i = 0u; i < OUTS; i++) {
        uint q = team + i * TEAMS;
        if (q < BQ && q0 + q < n)
            y[((q0 + q) * p.n_head + head) * DIM + d] = outs[i] * share(q, head);
    }
}
