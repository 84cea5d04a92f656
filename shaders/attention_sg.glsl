// The subgroup form of decode attention. LANES lanes share a position, each with VECTORS times
// eight values of the head, so that a subgroup reads whole cache rows in 16-byte pieces; nothing
// in the loop waits for another subgroup. The keys and values of UNROLL positions per lane are on
// their way together. The stem declares qkv as vec4 and includes cache_read.glsl.

layout(constant_id = 3) const uint LANES = 8u;  // power of two, at most the subgroup size
layout(constant_id = 4) const uint SUBGROUP = 8u;
layout(constant_id = 5) const uint UNROLL = 2u;

const uint EIGHTS = HEAD_DIM / 8u;
const uint VECTORS = (EIGHTS + LANES - 1u) / LANES;
const uint SUBGROUPS = WORKGROUP / SUBGROUP;

shared float heads[SUBGROUPS * GROUP * HEAD_DIM];
shared float states[SUBGROUPS * GROUP * 2u];
shared float shrinks[SUBGROUPS * GROUP], mosts[GROUP];

// Leaves the sums of every subgroup over positions t0 … t1 - 1 for the query heads of a set in
// heads[] and states[].
void attend(uint t0, uint t1, uint set) {
    uint lane = gl_SubgroupInvocationID % LANES;
    uint slots = WORKGROUP / LANES;
    uint slot = gl_SubgroupID * (SUBGROUP / LANES) + gl_SubgroupInvocationID / LANES;
    Eight q[GROUP * VECTORS], acc[GROUP * VECTORS];
    float best[GROUP], total[GROUP];
    uint dims[VECTORS];
    FLAT for (uint i = 0u; i < VECTORS; i++) {
        uint d = (lane + i * LANES) * 8u;
        bool inside = d < HEAD_DIM;  // lanes past the head's end multiply by a query of zeros
        dims[i] = inside ? d : HEAD_DIM - 8u;
        FLAT for (uint g = 0u; g < GROUP; g++) {
            uint at = ((set * GROUP + g) * HEAD_DIM + dims[i]) / 4u;
            float scale = inside ? p.scale : 0.0;
            q[g * VECTORS + i] = Eight(qkv[at] * scale, qkv[at + 1u] * scale);
            acc[g * VECTORS + i] = Eight(vec4(0.0), vec4(0.0));
        }
    }
    FLAT for (uint g = 0u; g < GROUP; g++) {
        best[g] = NEVER;
        total[g] = 0.0;
    }
    uint head = kv_head(set) * HEAD_DIM;
    for (uint base = t0 + slot; base < t1 + slot; base += slots * UNROLL) {
        Raw keys[UNROLL * VECTORS], vals[UNROLL * VECTORS];
        FLAT for (uint u = 0u; u < UNROLL; u++) {
            uint row = key_row(min(base + u * slots, t1 - 1u));
            FLAT for (uint i = 0u; i < VECTORS; i++)
                keys[u * VECTORS + i] = key(row, head + dims[i]);
            FLAT for (uint i = 0u; i < VECTORS; i++)
                vals[u * VECTORS + i] = val(row, head + dims[i]);
        }
        float s[GROUP * UNROLL];
        FLAT for (uint u = 0u; u < UNROLL; u++)
            FLAT for (uint i = 0u; i < VECTORS; i++) {
                Raw raw = keys[u * VECTORS + i];
                Eight e = unpack_key(raw);
                FLAT for (uint g = 0u; g < GROUP; g++) {
                    float part_sum = scaled(raw, dot(q[g * VECTORS + i].lo, e.lo)
                        + dot(q[g * VECTORS + i].hi, e.hi));
                    if (i == 0u) s[g * UNROLL + u] = part_sum;
                    else s[g * UNROLL + u] += part_sum;
                }
            }
        for (uint x = LANES / 2u; x > 0u; x /= 2u)
            FLAT for (uint i = 0u; i < GROUP * UNROLL; i++) s[i] += subgroupShuffleXor(s[i], x);
        if (p.softcap > 0.0)
            FLAT for (uint i = 0u; i < GROUP * UNROLL; i++) s[i] = capped(s[i], p.softcap);
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
        FLAT for (uint u = 0u; u < UNROLL; u++)
            FLAT for (uint i = 0u; i < VECTORS; i++) {
                Raw raw = vals[u * VECTORS + i];
                Eight e = unpack_val(raw);
                FLAT for (uint g = 0u; g < GROUP; g++) {
                    float weight = scaled(raw, s[g * UNROLL + u]);
                    acc[g * VECTORS + i].lo += weight * e.lo;
                    acc[g * VECTORS + i].hi += weight * e.hi;
                }
            }
    }
    // lanes of a subgroup that hold the same values of other positions
    FLAT for (uint g = 0u; g < GROUP; g++) {
        float next = best[g];
        for (uint x = SUBGROUP / 2u; x >= LANES; x /= 2u)
            next = max(next, subgroupShuffleXor(next, x));
        float shrink = exp(best[g] - next);
        best[g] = next;
        total[g] *= shrink;
        FLAT for (uint i = 0u; i < VECTORS; i++) {
            acc[g * VECTORS + i].lo *= shrink;
            acc[g * VECTORS + i].hi *= shrink;
        }
    }
    for (uint x = SUBGROUP / 2u; x >= LANES; x /= 2u)
        FLAT for (uint g = 0u; g < GROUP; g++) {
            total[g] += subgroupShuffleXor(total[g], x);
            FLAT for (uint i = 0u; i < VECTORS; i++) {
                acc[g * VECTORS + i].lo += subgroupShuffleXor(acc[g * VECTORS + i].lo, x);
                acc[g * VECTORS + i].hi += subgroupShuffleXor(acc[g * VECTORS + i].hi, x);
            }
        }
    if (gl_SubgroupInvocationID < LANES)
        FLAT for (uint g = 0u; g < GROUP; g++)
            FLAT for (uint i = 0u; i < VECTORS; i++) {
                uint d = (lane + i * LANES) * 8u, at = (gl_SubgroupID * GROUP + g) * HEAD_DIM + d;
                if (d < HEAD_DIM)
                    FLAT for (uint j = 0u; j < 4u; j++) {
                        heads[at + j] = acc[g * VECTORS + i].lo[j];
                        heads[at + 4u + j] = acc[g * VECTORS + i].hi[j];
                    }
            }
    if (gl_SubgroupInvocationID == 0u)
        FLAT for (uint g = 0u; g < GROUP; g++) {
            states[(gl_SubgroupID * GROUP + g) * 2u] = best[g];
            states[(gl_SubgroupID * GROUP + g) * 2u + 1u] = total[g];
        }
    barrier();
    // by how much every subgroup's sums shrink to the common maximum
    for (uint i = gl_LocalInvocationID.x; i < SUBGROUPS * GROUP; i += WORKGROUP) {
        uint g = i % GROUP;
        float most = NEVER;
        for (uint j = 0u; j < SUBGROUPS; j++) most = max(most, states[(j * GROUP + g) * 2u]);
        shrinks[i] = exp(states[i * 2u] - most);
        mosts[g] = most;
    }
    barrier();
}

// Value e (head e / HEAD_DIM of the group) of all subgroups: (sum of values, maximum, sum of exp)
vec3 joined_subgroups(uint e) {
    uint g = e / HEAD_DIM;
    float sum = 0.0, weights = 0.0;
    for (uint j = 0u; j < SUBGROUPS; j++) {
        float shrink = shrinks[j * GROUP + g];
        sum += shrink * heads[j * GROUP * HEAD_DIM + e];
        weights += shrink * states[(j * GROUP + g) * 2u + 1u];
    }
    return vec3(sum, mosts[g], weights);
}

// Writes value e of a split to part[].
void store_split(uint e, uint out0, uint out_step) {
    vec3 r = joined_subgroups(e);
    uint at = out0 + e / HEAD_DIM * out_step, d = e % HEAD_DIM;
    part[at + d] = r.x;
    if (d == 0u) {
        part[at + HEAD_DIM] = r.y;
        part[at + HEAD_DIM + 1u] = r.z;
    }
}
