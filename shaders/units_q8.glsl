// What a lane of the int8 mat-vecs takes at a time, a unit: a chunk of 32 values, or, in the formats
// of QUADS (dot_q8.glsl), four chunks of a block of 256 that share vectors of quants and scales.
// The including shader declares the activations xq[] and xs[] and includes dot_q8.glsl.

#ifdef QUADS
const uint UNIT = 4u;  // chunks of a unit

// Unit i of a row is half h = i & 1 of block i / 2: columns 32 s + 16 h … of groups s = 0 … 7
struct Inputs { uvec4 q[8]; vec2 z[8]; };

// Activations from group x0 on that unit i of a row is multiplied with
Inputs unit_inputs(uint x0, uint i) {
    Inputs x;
    uint at = x0 + (i >> 1) * 16u + (i & 1u);
    FLAT for (uint s = 0u; s < 8u; s++) {
        x.q[s] = xq[at + 2u * s];
        x.z[s] = xs[at + 2u * s];
    }
    return x;
}

#include "quads_q8.glsl"

#define INPUTS(x0, c, share) Inputs x = unit_inputs(x0, c)
#define PRODUCT(row, units, c, share) share * unit_dot(row, units, c, x)
#else
const uint UNIT = 1u;

struct Inputs { uvec4 a; uvec4 b; vec2 za; vec2 zb; };

Inputs unit_inputs(uint x0, uint i) {
    uint ga = x0 + chunk_a(i) / 16u, gb = x0 + chunk_b(i) / 16u;
    return Inputs(xq[ga], xq[gb], xs[ga], xs[gb]);
}

// Macros, since a driver (NVIDIA 580) is 10 % slower where structures are passed to functions
#define INPUTS(x0, c, share) \
    uint ga = (x0) + chunk_a(c) / 16u, gb = (x0) + chunk_b(c) / 16u; \
    uvec4 xa = xq[ga], xb = xq[gb]; \
    vec2 za = xs[ga] * share, zb = xs[gb] * share
#define PRODUCT(row, units, c, share) chunk_dot_q8((row) * (units) + (c), xa, xb, za, zb)
#endif
