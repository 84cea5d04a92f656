// The form of decode attention without subgroup operations: scores one position per invocation,
// maxima by a tree in shared memory, values one vector of four per invocation.

const uint VECTORS = HEAD_DIM / 4u;              // four values each
const uint RUNS = WORKGROUP >= VECTORS ? WORKGROUP / VECTORS : 1u;  // positions that the value pass takes at once
const uint PASSES = (VECTORS + WORKGROUP - 1u) / WORKGROUP;

shared vec4 qs[GROUP * VECTORS];
shared float ps[GROUP * WORKGROUP];
shared float red[GROUP * WORKGROUP];
shared float lsum[GROUP];

#ifdef F16
// values 4 i … 4 i + 3 of a cache
vec4 halves(uvec4 u, uint i) {
    uvec2 pair = (i & 1u) == 0u ? u.xy : u.zw;
    return vec4(unpackHalf2x16(pair.x), unpackHalf2x16(pair.y));
}
vec4 key(uint i) { return halves(k[p.k_base / 4u + i / 2u], i); }
vec4 val(uint i) { return halves(v[p.v_base / 4u + i / 2u], i); }
#else
vec4 key(uint i) { return uintBitsToFloat(k[p.k_base / 4u + i]); }
vec4 val(uint i) { return uintBitsToFloat(v[p.v_base / 4u + i]); }
#endif

void attend(uint t0, uint t1, uint kv_head, uint out0, uint out_step) {
    uint t = gl_LocalInvocationID.x;
    for (uint e = t; e < GROUP * VECTORS; e += WORKGROUP) {
        qs[e] = qkv[kv_head * GROUP * VECTORS + e] * p.scale;
    }
    uint row = p.n_head_kv * VECTORS, head = kv_head * VECTORS;
    uint dv = t % VECTORS, run = t / VECTORS;
    float best[GROUP], total[GROUP];
    vec4 acc[GROUP * PASSES];
    for (uint g = 0u; g < GROUP; g++) { best[g] = NEVER; total[g] = 0.0; }
    for (uint i = 0u; i < GROUP * PASSES; i++) acc[i] = vec4(0.0);
    barrier();
    for (uint base = t0; base < t1; base += WORKGROUP) {
        float s[GROUP];
        for (uint g = 0u; g < GROUP; g++) s[g] = NEVER;
        if (base + t < t1) {
            for (uint g = 0u; g < GROUP; g++) s[g] = 0.0;
            uint at = (base + t) * row + head;
            for (uint i = 0u; i < VECTORS; i++) {
                vec4 kv = key(at + i);
                for (uint g = 0u; g < GROUP; g++) s[g] += dot(qs[g * VECTORS + i], kv);
            }
        }
        for (uint g = 0u; g < GROUP; g++) red[g * WORKGROUP + t] = s[g];
        barrier();
        for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
            if (t < d)
                for (uint g = 0u; g < GROUP; g++)
                    red[g * WORKGROUP + t] =
                        max(red[g * WORKGROUP + t], red[g * WORKGROUP + t + d]);
            barrier();
        }
        for (uint g = 0u; g < GROUP; g++) {
            float next = max(best[g], red[g * WORKGROUP]);
            float shrink = exp(best[g] - next);
            best[g] = next;
            total[g] *= shrink;
            for (uint i = 0u; i < PASSES; i++) acc[g * PASSES + i] *= shrink;
            ps[g * WORKGROUP + t] = base + t < t1 ? exp(s[g] - next) : 0.0;
        }
        barrier();
        uint count = min(t1 - base, WORKGROUP);
        for (uint i = 0u; i < PASSES; i++) {
            uint vec = dv + i * WORKGROUP;
            if (run >= RUNS || vec >= VECTORS) break;
            uint at = base * row + head + vec;
            for (uint j = run; j < count; j += RUNS) {
                vec4 kv = val(at + j * row);
                for (uint g = 0u; g < GROUP; g++) {
                    float weight = ps[g * WORKGROUP + j];
                    acc[g * PASSES + i] += weight * kv;
                    if (i == 0u) total[g] += weight;
                }
            }
        }
        barrier();
    }
    // sums over the runs, in a fixed order; qs is free by now
    for (uint r = 0u; r < RUNS; r++) {
        if (run == r) {
            for (uint i = 0u; i < PASSES; i++) {
                uint vec = dv + i * WORKGROUP;
                if (vec >= VECTORS) break;
                for (uint g = 0u; g < GROUP; g++) {
                    uint at = g * VECTORS + vec;
                    qs[at] = r == 0u ? acc[g * PASSES + i] : qs[at] + acc[g * PASSES + i];
                    if (vec == 0u) lsum[g] = r == 0u ? total[g] : lsum[g] + total[g];
                }
            }
        }
        barrier();
    }
    for (uint e = t; e < GROUP * HEAD_DIM; e += WORKGROUP)
        part[out0 + e / HEAD_DIM * out_step + e % HEAD_DIM] =
            qs[e / HEAD_DIM * VECTORS + e % HEAD_DIM / 4u][e & 3u];
    if (t == 0u)
        for (uint g = 0u; g < GROUP; g++) {
            part[out0 + g * out_step + HEAD_DIM] = best[g];
            part[out0 + g * out_step + HEAD_DIM + 1u] = lsum[g];
        }
}
