// Body of the mat-vec family: rows of W times one vector, ROWS rows per group of LANES lanes.
// The stem defines one of ADD (y += …), GATED (gate and up rows, activated(gate) * up) or neither,
// and NORM when the input is rms-normalised on the way: the sum of squares needs no pass of its
// own, since the lanes of a row read the whole vector anyway. PLUS: the input is x + rmsnorm(z) g,
// which is never written, W x and W (z g) being sums of their own; y = activated(…) e.
//
// spec: 0 workgroup size, 1 LANES (power of two <= workgroup, and <= subgroup with SG1), 2 ROWS

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 32u;
layout(constant_id = 1) const uint LANES = 8u;
layout(constant_id = 2) const uint ROWS = 1u;

#include "gate.glsl"

#if defined(GATED) || defined(PLUS)
const uint SUMS = 2u * ROWS + 1u;
#else
const uint SUMS = ROWS + 1u;
#endif

#ifdef SG0
shared float partial[WORKGROUP * SUMS];
#endif

// Sums v[] over the LANES lanes of a group; every lane gets the totals.
void sum_lanes(inout float v[SUMS], uint lane) {
#ifdef SG1
    for (uint d = LANES / 2u; d > 0u; d /= 2u)
        FLAT for (uint i = 0u; i < SUMS; i++) v[i] += subgroupShuffleXor(v[i], d);
#else
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
#endif
}

void main() {
    if (step[STEP_STOP] != 0u) return;
    uint lane = gl_LocalInvocationID.x % LANES;
    uint group = gl_LocalInvocationID.x / LANES;
    uint wg = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint row0 = (wg * (WORKGROUP / LANES) + group) * ROWS;
    uint chunks = p.cols / 32u;
#ifdef NORM
    uint xbase = (step[STEP_N] - 1u) * (p.cols / 4u);
#else
    const uint xbase = 0u;
#endif
    float v[SUMS];
    FLAT for (uint i = 0u; i < SUMS; i++) v[i] = 0.0;
    for (uint c = lane; c < chunks; c += LANES) {
        uint ca = chunk_a(c) / 4u, cb = chunk_b(c) / 4u;
        vec4 xa[4], xb[4];
        vec4 ta = vec4(0.0), tb = vec4(0.0);
        FLAT for (uint k = 0u; k < 4u; k++) {
            xa[k] = x[xbase + ca + k];
            xb[k] = x[xbase + cb + k];
#ifdef NORM
            v[SUMS - 1u] += dot(xa[k], xa[k]) + dot(xb[k], xb[k]);
            xa[k] *= uintBitsToFloat(g4[p.g_p0 / 4u + ca + k]);
            xb[k] *= uintBitsToFloat(g4[p.g_p0 / 4u + cb + k]);
#endif
            ta += xa[k];
            tb += xb[k];
        }
        vec2 sums = vec2(ta.x + ta.y + ta.z + ta.w, tb.x + tb.y + tb.z + tb.w);
#ifdef PLUS
        vec4 za[4], zb[4];
        ta = tb = vec4(0.0);
        FLAT for (uint k = 0u; k < 4u; k++) {
            za[k] = z[ca + k];
            zb[k] = z[cb + k];
            v[SUMS - 1u] += dot(za[k], za[k]) + dot(zb[k], zb[k]);
            za[k] *= uintBitsToFloat(g4[p.g_p0 / 4u + ca + k]);
            zb[k] *= uintBitsToFloat(g4[p.g_p0 / 4u + cb + k]);
            ta += za[k];
            tb += zb[k];
        }
        vec2 z_sums = vec2(ta.x + ta.y + ta.z + ta.w, tb.x + tb.y + tb.z + tb.w);
#endif
        FLAT for (uint r = 0u; r < ROWS; r++) {
            uint row = min(row0 + r, p.rows - 1u);
            v[r] += chunk_dot(row * chunks + c, xa, xb, sums);
#ifdef GATED
            v[ROWS + r] += chunk_dot((p.rows + row) * chunks + c, xa, xb, sums);
#elif defined(PLUS)
            v[ROWS + r] += chunk_dot(row * chunks + c, za, zb, z_sums);
#endif
        }
    }
    sum_lanes(v, lane);
#if defined(NORM) || defined(PLUS)
    float norm = inversesqrt(v[SUMS - 1u] / float(p.cols) + p.eps);
#else
    const float norm = 1.0;
#endif
    if (lane != 0u) return;
    for (uint r = 0u; r < ROWS && row0 + r < p.rows; r++) {
        uint at = p.y_off + row0 + r;
#if defined(GATED)
        float gate = v[r] * norm;
        y[at] = activated(gate) * (v[ROWS + r] * norm);
#elif defined(PLUS)
        uint row = row0 + r;  // rows from e_cols on are padding
        float gate = v[r] + v[ROWS + r] * norm;
        y[at] = row < p.e_cols ? activated(gate) * e[p.e_off + row] : 0.0;
#elif defined(ADD)
        y[at] += v[r];
#else
        y[at] = v[r] * norm;
#endif
    }
}
