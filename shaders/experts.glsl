// Body of the float32 products of a token's experts: rows in groups of LANES lanes, as matvec.glsl;
// slots, weights and biases as experts_q8.glsl. SWIGLU normalises its input on the way.
//
// spec: 0 workgroup, 1 LANES (power of two <= workgroup), 2 ROWS, 3 SLOTS

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint LANES = 8u;
layout(constant_id = 2) const uint ROWS = 1u;
layout(constant_id = 3) const uint SLOTS = 2u;

#ifdef SWIGLU
const uint SUMS = 2u * ROWS + 1u;
#else
const uint SUMS = ROWS;
#endif
shared float partial[WORKGROUP * SUMS];
#include "experts_gate.glsl"

void sum_lanes(inout float v[SUMS], uint lane) {
    uint t = gl_LocalInvocationID.x;
    FLAT for (uint i = 0u; i < SUMS; i++) partial[i * WORKGROUP + t] = v[i];
    barrier();
    for (uint d = LANES / 2u; d > 0u; d /= 2u) {
        if (lane < d)
            FLAT for (uint i = 0u; i < SUMS; i++)
                partial[i * WORKGROUP + t] += partial[i * WORKGROUP + t + d];
        barrier();
    }
    FLAT for (uint i = 0u; i < SUMS; i++) v[i] = partial[i * WORKGROUP + t - lane];
}

// Adds the products of one expert's rows, first of them `rows0`, with the vector at x[from], times
// `part`
void add_products(inout float v[SUMS], uint lane, uint row0, uint rows0, uint from, float part) {
    uint chunks = p.cols / 32u;
    for (uint c = lane; c < chunks; c += LANES) {
        uint ca = chunk_a(c) / 4u, cb = chunk_b(c) / 4u;
        vec4 xa[4], xb[4];
        vec4 ta = vec4(0.0), tb = vec4(0.0);
        FLAT for (uint k = 0u; k < 4u; k++) {
            xa[k] = x[from + ca + k];
            xb[k] = x[from + cb + k];
#ifdef SWIGLU
            v[SUMS - 1u] += dot(xa[k], xa[k]) + dot(xb[k], xb[k]);
            xa[k] *= uintBitsToFloat(g4[p.g_p0 / 4u + ca + k]);
            xb[k] *= uintBitsToFloat(g4[p.g_p0 / 4u + cb + k]);
#endif
            ta += xa[k];
            tb += xb[k];
        }
        vec2 sums = vec2(ta.x + ta.y + ta.z + ta.w, tb.x + tb.y + tb.z + tb.w);
        FLAT for (uint r = 0u; r < ROWS; r++) {
            uint row = rows0 + min(row0 + r, p.rows - 1u);
            v[r] += part * chunk_dot(row * chunks + c, xa, xb, sums);
#ifdef SWIGLU
            v[ROWS + r] += chunk_dot((p.experts * p.rows + row) * chunks + c, xa, xb, sums);
#endif
        }
    }
}

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint lane = gl_LocalInvocationID.x % LANES, group = gl_LocalInvocationID.x / LANES;
    uint row0 = (gl_WorkGroupID.x * (WORKGROUP / LANES) + group) * ROWS;
    float v[SUMS];
    FLAT for (uint i = 0u; i < SUMS; i++) v[i] = 0.0;
#ifdef SWIGLU
    uint slot = gl_WorkGroupID.y;
    float chosen = route[slot].x;
    uint expert = uint(max(chosen, 0.0)) - p.first;
    if (chosen < 0.0 || expert >= p.experts) return;
    add_products(v, lane, row0, expert * p.rows, 0u, 1.0);
    sum_lanes(v, lane);
    float norm = inversesqrt(v[SUMS - 1u] / float(p.cols) + p.eps);
    if (lane != 0u) return;
    for (uint r = 0u; r < ROWS && row0 + r < p.rows; r++)
        y[slot * p.rows + row0 + r] =
            gated(v[r] * norm, v[ROWS + r] * norm, expert * p.rows + row0 + r);
#else
    for (uint s = 0u; s < SLOTS; s++) {
        vec2 choice = route[s];
        uint expert = uint(max(choice.x, 0.0)) - p.first;
        if (choice.x < 0.0 || expert >= p.experts) continue;
        add_products(v, lane, row0, expert * p.rows, s * (p.cols / 4u), choice.y);
#ifdef BIAS
        if (lane == 0u)
            FLAT for (uint r = 0u; r < ROWS; r++)
                v[r] += choice.y * uintBitsToFloat(
                    b[p.b_p0 + expert * p.rows + min(row0 + r, p.rows - 1u)]);
#endif
    }
    sum_lanes(v, lane);
    if (lane != 0u) return;
    for (uint r = 0u; r < ROWS && row0 + r < p.rows; r++) y[row0 + r] += v[r];
#endif
}
