// A vector in int8 in shared memory, in the kernels of narrow models (kernels/narrow.py).
// The including shader defines WIDTH, its values: a multiple of 32.
// spec: 0 workgroup, 1 subgroup size (at least 4)

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint SUBGROUP = 8u;

const uint TEAMS = WORKGROUP / SUBGROUP;

#include "quant4.glsl"

shared uvec4 xq[WIDTH / 16u];  // groups of 16 values
shared vec2 xs[WIDTH / 16u];   // scale, scale times sum

// Values 4 n … 4 n + 3 of the vector, stored if `inside`; neighbouring lanes have the others of a
// group
void quantize_x(uint n, vec4 v, bool inside) {
    vec2 z;
    uint word = quantized(v, z);
    if (!inside) return;
    xq[n / 4u][n & 3u] = word;
    if ((n & 3u) == 0u) xs[n / 4u] = z;
}
