// Rows of the latent cache: the normalised latent (rank values), then the rotated key (n_rot). The
// including shader declares WORKGROUP, partial[] of at least that size, a[], h, k and rope. Rows are
// F16 in builds with KV16, or where the shader defines HALF_KV.

#ifndef HALF_KV
#ifdef KV16
#define HALF_KV true
#else
#define HALF_KV false
#endif
#endif

vec2 turned(uint pos, uint pair, vec2 v) {
    vec2 cs = rope[pos * (p.n_rot / 2u) + pair];
    return vec2(v.x * cs.x - v.y * cs.y, v.x * cs.y + v.y * cs.x);
}

// 1 / root mean square of a[from] … (n values), for every invocation
#ifdef SG1
// partial[]: one of each subgroup
float inverse_rms(uint from, uint n, uint t) {
    float sum = 0.0, total = 0.0;
    for (uint i = t; i < n; i += WORKGROUP) sum += a[from + i] * a[from + i];
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) sum += subgroupShuffleXor(sum, d);
    if (gl_SubgroupInvocationID == 0u) partial[gl_SubgroupID] = sum;
    barrier();
    for (uint i = 0u; i < WORKGROUP / SUBGROUP; i++) total += partial[i];
    return inversesqrt(total / float(n) + p.eps);
}
#else
float inverse_rms(uint from, uint n, uint t) {
    float sum = 0.0;
    for (uint i = t; i < n; i += WORKGROUP) sum += a[from + i] * a[from + i];
    partial[t] = sum;
    barrier();
    for (uint d = WORKGROUP / 2u; d > 0u; d /= 2u) {
        if (t < d) partial[t] += partial[t + d];
        barrier();
    }
    float total = partial[0];
    barrier();
    return inversesqrt(total / float(n) + p.eps);
}
#endif

void store_pair(uint pos, uint i, vec2 v) {
    uint width = p.rank + p.n_rot;
    if (HALF_KV) {
        k[p.k_base + (pos * width + i) / 2u] = packHalf2x16(v);
    } else {
        k[p.k_base + pos * width + i] = floatBitsToUint(v.x);
        k[p.k_base + pos * width + i + 1u] = floatBitsToUint(v.y);
    }
}

// The row of a position, from the latent and the key that start at a[row + first]
void write_latent(uint pos, uint row, uint first, uint t) {
    uint from = row + first;
    float scale = inverse_rms(from, p.rank, t);
    for (uint i = 2u * t; i < p.rank; i += 2u * WORKGROUP) {
        vec2 gain = vec2(uintBitsToFloat(h[p.h_p0 + i]), uintBitsToFloat(h[p.h_p0 + i + 1u]));
        store_pair(pos, i, vec2(a[from + i], a[from + i + 1u]) * scale * gain);
    }
    for (uint i = t; i < p.n_rot / 2u; i += WORKGROUP) {
        uint at = from + p.rank + 2u * i;
        store_pair(pos, p.rank + 2u * i, turned(pos, i, vec2(a[at], a[at + 1u])));
    }
}
