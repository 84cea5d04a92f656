// The form of decode attention without subgroup operations: scores one position per invocation,
// maxima by a tree in shared memory, values one vector of four per invocation.

const uint VECTORS = HEAD_DIM / 4u;              // four values each
const uint RUNS = WORKGROUP >= VECTORS ? WORKGROUP / VECTORS : 1u;  // positions that the value pass takes at once
const uint PASSES = (VECTORS + WORKGROUP - 1u) / WORKGROUP;

shared vec4 qs[GROUP * VECTORS];
shared float ps[GROUP * WORKGROUP];
shared float red[GROUP * WORKGROUP];
shared float lsum[GROUP];

void attend(uint t0, uint t1, uint set, uint out0, uint out_step) {
    uint t = gl_LocalInvocationID.x;
    for (uint e = t; e < GROUP * VECTORS; e += WORKGROUP) {
        qs[e] = qkv[set * GROUP * VECTORS + e] * p.scale;
    }
    uint head = kv_head(set) * HEAD_DIM;
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
            uint row = key_row(base + t);
            for (uint i = 0u; i < VECTORS; i++) {
                vec4 kv = key_four(row, head + 4u * i);
                for (uint g = 0u; g < GROUP; g++) s[g] += dot(qs[g * VECTORS + i], kv);
            }
            if (p.softcap > 0.0)
                for (uint g = 0u; g < GROUP; g++) s[g] = capped(s[g], p.softcap);
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
            for (uint j = run; j < count; j += RUNS) {
                vec4 kv = val_four(key_row(base + j), head + 4u * vec);
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
