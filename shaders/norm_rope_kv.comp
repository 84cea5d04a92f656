#version 450
#extension GL_GOOGLE_include_directive : require
// Everything between the projections and attention: bias, norms of heads, rotation; q goes to y,
// k and v into the caches. A workgroup takes SPAN columns of q, of k or of v, which are whole heads
// and whole groups of a quantized cache.
//
// q_group, k_group, v_group: how many neighbouring values are normalised together, 0 for none: a
// head (head_dim) or all heads. g holds the gains of q (q_group values), then of k (k_group).
// Values (d, d + apart) of a head rotate together: neighbours (apart = 1), or n_rot / 2 apart.
// build: [KV16|ANY]
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;  // a multiple of 32
#ifdef ANY
layout(constant_id = 1) const uint K_TYPE = 0u;
layout(constant_id = 2) const uint V_TYPE = 0u;
#endif
layout(constant_id = 3) const uint HEAD_DIM = 64u;
layout(constant_id = 4) const uint SPAN = 64u;  // a multiple of 64 and of HEAD_DIM
layout(constant_id = 5) const uint RING = 0u;  // rows of the caches (cache.glsl)

READS(0, float, qkv)
READS(1, vec2, rope)
WEIGHT(2, bias)
WEIGHT(3, g)
WRITES(4, float, y)
UPDATES(5, uint, k)
UPDATES(6, uint, v)
READS(7, uint, step)
PUSH {
    uint n_head; uint n_head_kv; uint head_dim; uint n_rot; uint apart;
    uint q_group; uint k_group; uint v_group; float eps; uint k_base; uint v_base;
    PLANES(bias); PLANES(g);
} p;

#include "cache_store.glsl"

const uint HEADS = SPAN / HEAD_DIM;
shared float values[SPAN], partial[WORKGROUP], inverse[HEADS];

float biased(uint base, uint column) {
    return qkv[base + column] + uintBitsToFloat(bias[p.bias_p0 + column]);
}

float sum_all(float own) {
    uint t = gl_LocalInvocationID.x;
    barrier();
    partial[t] = own;
    barrier();
    for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
        if (t < d) partial[t] += partial[t + d];
        barrier();
    }
    return partial[0];
}

// 1 / rms of `width` columns from `first` on
float inverse_of(uint base, uint first, uint width) {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < width; i += WORKGROUP) {
        float own = biased(base, first + i);
        sum += own * own;
    }
    return inversesqrt(sum_all(sum) / float(width) + p.eps);
}

// Columns first … of q, k or v (which has `width` columns and begins at `part`) into values[]
void load_span(uint base, uint part, uint first, uint width, uint group, uint gains) {
    uint t = gl_LocalInvocationID.x;
    for (uint h = 0u; h < HEADS; h++) {
        float norm = 1.0;
        if (group == HEAD_DIM) {
            if (first + h * HEAD_DIM < width)
                norm = inverse_of(base, part + first + h * HEAD_DIM, HEAD_DIM);
        } else if (group > 0u) {
            norm = h == 0u ? inverse_of(base, part, width) : inverse[0];
        }
        if (t == 0u) inverse[h] = norm;
        barrier();
    }
    for (uint i = t; i < SPAN; i += WORKGROUP) {
        float own = 0.0;
        if (first + i < width) {
            own = biased(base, part + first + i) * inverse[i / HEAD_DIM];
            if (gains != ~0u) own *= uintBitsToFloat(g[p.g_p0 + gains + (first + i) % group]);
        }
        values[i] = own;
    }
    barrier();
}

// Value i of the span, rotated
float rotated(uint i, uint pos) {
    uint d = i % HEAD_DIM;
    float own = values[i];
    if (d >= p.n_rot) return own;
    bool first = p.apart == 1u ? (d & 1u) == 0u : d < p.apart;
    uint pair = p.apart == 1u ? d / 2u : first ? d : d - p.apart;
    vec2 cs = rope[pos * (p.n_rot / 2u) + pair];
    return first ? own * cs.x - values[i + p.apart] * cs.y
                 : values[i - p.apart] * cs.y + own * cs.x;
}

void main() {
    uint row = gl_WorkGroupID.y, wg = gl_WorkGroupID.x, t = gl_LocalInvocationID.x;
    if (step[STEP_STOP] != 0u || row >= step[STEP_N]) return;
    uint q_dim = p.n_head * HEAD_DIM, kv_dim = p.n_head_kv * HEAD_DIM;
    uint pos = step[STEP_POS] + row, stride = q_dim + 2u * kv_dim, base = row * stride;
    uint q_spans = (q_dim + SPAN - 1u) / SPAN, kv_spans = (kv_dim + SPAN - 1u) / SPAN;
    bool is_q = wg < q_spans, is_v = wg >= q_spans + kv_spans;
    uint first = (is_q ? wg : is_v ? wg - q_spans - kv_spans : wg - q_spans) * SPAN;
    uint width = is_q ? q_dim : kv_dim, part = is_q ? 0u : is_v ? q_dim + kv_dim : q_dim;
    uint group = is_q ? p.q_group : is_v ? p.v_group : p.k_group;
    uint gains = is_v || group == 0u ? ~0u : is_q ? 0u : p.q_group;
    load_span(base, part, first, width, group, gains);
    for (uint i = 2u * t; i < (SPAN + 2u * WORKGROUP - 1u) / (2u * WORKGROUP) * 2u * WORKGROUP;
         i += 2u * WORKGROUP) {
        vec2 pair = vec2(0.0);
        bool there = i < SPAN && first + i < width;
        if (there) pair = is_v ? vec2(values[i], values[i + 1u])
                               : vec2(rotated(i, pos), rotated(i + 1u, pos));
        if (!is_q) {
            // columns beyond the span are another workgroup's
            store_row(is_v, pos, kv_dim, i < SPAN ? first + i : 0x40000000u + i, pair.x, pair.y);
            barrier();
        } else if (there) {
            y[base + first + i] = pair.x;
            y[base + first + i + 1u] = pair.y;
        }
    }
}
