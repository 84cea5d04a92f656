// The subgroup form of decode attention. LANES lanes share a position, each with VECTORS times
// eight values of the head, so that a subgroup reads whole cache rows in 16-byte pieces; nothing
// in the loop waits for another subgroup. UNROLL positions per lane keep more loads in flight.

layout(constant_id = 3) const uint LANES = 8u;  // power of two, at most the subgroup size
layout(constant_id = 4) const uint SUBGROUP = 8u;

const uint EIGHTS = (HEAD_DIM + 7u) / 8u;
const uint VECTORS = (EIGHTS + LANES - 1u) / LANES;
const uint UNROLL = 4u;
const uint SUBGROUPS = WORKGROUP / SUBGROUP;

shared float heads[SUBGROUPS * GROUP * HEAD_DIM];
shared float states[SUBGROUPS * GROUP * 2u];

struct Eight { vec4 lo; vec4 hi; };

#ifdef F16
Eight unpack(uvec4 u) {
    return Eight(vec4(unpackHalf2x16(u.x), unpackHalf2x16(u.y)),
                 vec4(unpackHalf2x16(u.z), unpackHalf2x16(u.w)));
}
Eight key(uint value) { return unpack(k[(p.k_base + value / 2u) / 4u]); }
Eight val(uint value) { return unpack(v[(p.v_base + value / 2u) / 4u]); }
#else
Eight key(uint value) {
    uint at = (p.k_base + value) / 4u;
    return Eight(uintBitsToFloat(k[at]), uintBitsToFloat(k[at + 1u]));
}
Eight val(uint value) {
    uint at = (p.v_base + value) / 4u;
    return Eight(uintBitsToFloat(v[at]), uintBitsToFloat(v[at + 1u]));
}
#endif

void attend(uint t0, uint t1, uint kv_head, uint out0, uint out_step) {
    uint lane = gl_SubgroupInvocationID % LANES;
    uint slots = WORKGROUP / LANES;
    uint slot = gl_SubgroupID * (SUBGROUP / LANES) + gl_SubgroupInvocationID / LANES;
    Eight q[GROUP * VECTORS], acc[GROUP * VECTORS];
    float best[GROUP], total[GROUP];
    FLAT for (uint g = 0u; g < GROUP; g++) {
        best[g] = NEVER;
        total[g] = 0.0;
        FLAT for (uint i = 0u; i < VECTORS; i++) {
            uint d = (lane + i * LANES) * 8u;
            Eight e = Eight(vec4(0.0), vec4(0.0));
            if (d < HEAD_DIM) {
                uint at = (kv_head * GROUP + g) * HEAD_DIM + d;
                e.lo = vec4(qkv[at], qkv[at + 1u], qkv[at + 2u], qkv[at + 3u]) * p.scale;
                e.hi = vec4(qkv[at + 4u], qkv[at + 5u], qkv[at + 6u], qkv[at + 7u]) * p.scale;
            }
            q[g * VECTORS + i] = e;
            acc[g * VECTORS + i] = Eight(vec4(0.0), vec4(0.0));
        }
    }
    uint row = p.n_head_kv * HEAD_DIM, head = kv_head * HEAD_DIM;
    for (uint base = t0 + slot; base < t1 + slot; base += slots * UNROLL) {
        float s[GROUP * UNROLL];
        FLAT for (uint i = 0u; i < GROUP * UNROLL; i++) s[i] = 0.0;
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint t = min(base + u * slots, t1 - 1u);
            FLAT for (uint i = 0u; i < VECTORS; i++) {
                uint d = (lane + i * LANES) * 8u;
                // lanes past the head's end multiply by a query of zeros
                Eight e = key(t * row + head + min(d, HEAD_DIM - 8u));
                FLAT for (uint g = 0u; g < GROUP; g++)
                    s[g * UNROLL + u] += dot(q[g * VECTORS + i].lo, e.lo)
                        + dot(q[g * VECTORS + i].hi, e.hi);
            }
        }
        for (uint x = LANES / 2u; x > 0u; x /= 2u)
            FLAT for (uint i = 0u; i < GROUP * UNROLL; i++) s[i] += subgroupShuffleXor(s[i], x);
        FLAT for (uint g = 0u; g < GROUP; g++) {
            float next = best[g];
            FLAT for (uint u = 0u; u < UNROLL; u++) {
                if (base + u * slots >= t1) s[g * UNROLL + u] = NEVER;
                next = max(next, s[g * UNROLL + u]);
            }
            float shrink = exp(best[g] - next);
            best[g] = next;
            total[g] *= shrink;
            FLAT for (uint i = 0u; i < VECTORS; i++) {
                acc[g * VECTORS + i].lo *= shrink;
                acc[g * VECTORS + i].hi *= shrink;
            }
            FLAT for (uint u = 0u; u < UNROLL; u++) {
                float w = base + u * slots < t1 ? exp(s[g * UNROLL + u] - next) : 0.0;
                s[g * UNROLL + u] = w;
                total[g] += w;
            }
        }
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint t = min(base + u * slots, t1 - 1u);
            FLAT for (uint i = 0u; i < VECTORS; i++) {
                uint d = (lane + i * LANES) * 8u;
                Eight e = val(t * row + head + min(d, HEAD_DIM - 8u));
                FLAT for (uint g = 0u; g < GROUP; g++) {
                    acc[g * VECTORS + i].lo += s[g * UNROLL + u] * e.lo;
                    acc[g * VECTORS + i].hi += s[g * UNROLL + u] * e.hi;
                }
            }
        }
    }
    // lanes of a subgroup that hold the same values of other positions, then the subgroups
    FLAT for (uint g = 0u; g < GROUP; g++) {
        float next = best[g];
        for (uint x = SUBGROUP / 2u; x >= LANES; x /= 2u)
            next = max(next, subgroupShuffleXor(next, x));
        float shrink = exp(best[g] - next);
        best[g] = next;
        total[g] *= shrink;
        for (uint x = SUBGROUP / 2u; x >= LANES; x /= 2u)
            total[g] += subgroupShuffleXor(total[g], x);
        FLAT for (uint i = 0u; i < VECTORS; i++) {
            vec4 lo = acc[g * VECTORS + i].lo * shrink, hi = acc[g * VECTORS + i].hi * shrink;
            for (uint x = SUBGROUP / 2u; x >= LANES; x /= 2u) {
                lo += subgroupShuffleXor(lo, x);
                hi += subgroupShuffleXor(hi, x);
            }
            uint d = (lane + i * LANES) * 8u;
            if (gl_SubgroupInvocationID < LANES && d < HEAD_DIM)
                FLAT for (uint j = 0u; j < 4u; j++) {
                    uint at = (gl_SubgroupID * GROUP + g) * HEAD_DIM + d + j;
                    heads[at] = lo[j];
                    heads[at + 4u] = hi[j];
                }
        }
        if (gl_SubgroupInvocationID == 0u) {
            states[(gl_SubgroupID * GROUP + g) * 2u] = best[g];
            states[(gl_SubgroupID * GROUP + g) * 2u + 1u] = total[g];
        }
    }
    barrier();
    for (uint e = gl_LocalInvocationID.x; e < GROUP * HEAD_DIM; e += WORKGROUP) {
        uint g = e / HEAD_DIM;
        float most = NEVER, sum = 0.0, weights = 0.0;
        for (uint j = 0u; j < SUBGROUPS; j++) most = max(most, states[(j * GROUP + g) * 2u]);
        for (uint j = 0u; j < SUBGROUPS; j++) {
            float shrink = exp(states[(j * GROUP + g) * 2u] - most);
            sum += shrink * heads[j * GROUP * HEAD_DIM + e];
            weights += shrink * states[(j * GROUP + g) * 2u + 1u];
        }
        part[out0 + g * out_step + e % HEAD_DIM] = sum;
        if (e % HEAD_DIM == 0u) {
            part[out0 + g * out_step + HEAD_DIM] = most;
            part[out0 + g * out_step + HEAD_DIM + 1u] = weights;
        }
    }
}
