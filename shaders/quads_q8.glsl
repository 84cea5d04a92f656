// Scalar products of four chunks at once: unit i of a row, half h = i & 1 of its block i / 2, holds
// 16 columns of each of the block's eight groups of 32, s = 0 … 7 (blocks.glsl). Bits are taken out
// where they are, by masks; what is too large by a power of two is put right behind the sum.
// Sums of products stay below 2^31.
//
// Instructions for 128 values of Q3_K, of a row, by count of what is written here:
//                     loads  dot4  shifts, masks  scales  addresses  others
//   chunk by chunk       12    32            128      64         40      32   9.3 a useful dot4
//   quad                  4    64             72      28         10      34   6.5, 2 of them dot4

#if defined(Q3_K)
// Value = low two bits - 4 * (third bit is 0), so with the third bits inverted there is no offset.
// Scales come out as four times (scale - 32) in signed bytes: groups 2 i, 2 i + 1 in bytes 0, 2.
struct Unit { uvec4 q0; uvec4 q1; uvec4 third; uvec4 head; };

Unit unit_fetch(uint row, uint units, uint i) {
    uint block = row * (units >> 1) + (i >> 1), h = i & 1u, at = p.w_p0 / 4u + block * 4u + h;
    return Unit(w4[at], w4[at + 2u], w4[p.w_p1 / 4u + block * 2u + h], w4[p.w_p2 / 4u + block]);
}

float unit_dot_of(Unit u, uint i, Inputs x) {
    uvec4 q0 = u.q0, q1 = u.q1, third = ~u.third, head = u.head;
    uint h = i & 1u;
    uvec3 sc = head.xyz >> (8u * h);
    sc.z ^= 0xAAAAAAAAu;
    uvec4 k = (uvec4(sc.xy << 2, sc.xy >> 2) & 0x3C3C3C3Cu)
        | (uvec4(sc.z << 6, sc.z << 4, sc.z << 2, sc.z) & 0xC0C0C0C0u);
    uvec4 r0 = q0 >> 4, r1 = q1 >> 4;
    // times 1, 4, 1, 4, 4, 8, 16, 32
    int n[8] = int[8](
        dot16(q0 & 0x03030303u, x.q[0]) - 4 * dot16(third & 0x01010101u, x.q[0]),
        dot16(q0 & 0x0C0C0C0Cu, x.q[1]) - 8 * dot16(third & 0x02020202u, x.q[1]),
        dot16(r0 & 0x03030303u, x.q[2]) - dot16(third & 0x04040404u, x.q[2]),
        dot16(r0 & 0x0C0C0C0Cu, x.q[3]) - 2 * dot16(third & 0x08080808u, x.q[3]),
        4 * dot16(q1 & 0x03030303u, x.q[4]) - dot16(third & 0x10101010u, x.q[4]),
        2 * dot16(q1 & 0x0C0C0C0Cu, x.q[5]) - dot16(third & 0x20202020u, x.q[5]),
        16 * dot16(r1 & 0x03030303u, x.q[6]) - dot16(third & 0x40404040u, x.q[6]),
        8 * dot16(r1 & 0x0C0C0C0Cu, x.q[7]) + dot16(third & 0x80808080u, x.q[7]));
    const float part[8] = float[8](1.0, 0.25, 1.0, 0.25, 0.25, 0.125, 0.0625, 0.03125);
    float sum = 0.0;
    FLAT for (uint s = 0u; s < 8u; s++) {
        int scale = bitfieldExtract(int(k[s / 2u]), int(s & 1u) * 16, 8);
        sum += float(n[s] * scale) * (x.z[s].x * part[s]);
    }
    return 0.25 * unpackHalf2x16(head.w).x * sum;
}
#elif defined(Q2_K)
// A byte of scale (low nibble) and minimum for each group: of groups 2 i, 2 i + 1 in bytes 0, 2
struct Unit { uvec4 q0; uvec4 q1; uvec4 k; uint dm; };

Unit unit_fetch(uint row, uint units, uint i) {
    uint block = row * (units >> 1) + (i >> 1), h = i & 1u, at = p.w_p0 / 4u + block * 4u + h;
    return Unit(w4[at], w4[at + 2u], w4[p.w_p1 / 4u + block], w[p.w_p2 + block]);
}

float unit_dot_of(Unit u, uint i, Inputs x) {
    uvec4 q0 = u.q0, q1 = u.q1, k = u.k >> (8u * (i & 1u)), scales = k & 0x000F000Fu;
    uvec4 minima = (k >> 4) & 0x000F000Fu, r0 = q0 >> 4, r1 = q1 >> 4;
    vec2 dm = unpackHalf2x16(u.dm);
    // times 1 and 4 in turn
    int n[8] = int[8](
        dot16(q0 & 0x03030303u, x.q[0]), dot16(q0 & 0x0C0C0C0Cu, x.q[1]),
        dot16(r0 & 0x03030303u, x.q[2]), dot16(r0 & 0x0C0C0C0Cu, x.q[3]),
        dot16(q1 & 0x03030303u, x.q[4]), dot16(q1 & 0x0C0C0C0Cu, x.q[5]),
        dot16(r1 & 0x03030303u, x.q[6]), dot16(r1 & 0x0C0C0C0Cu, x.q[7]));
    float sum = 0.0, least = 0.0;
    FLAT for (uint s = 0u; s < 8u; s += 2u) {
        uint a = scales[s / 2u], b = minima[s / 2u];
        sum += float(n[s] * int(a & 15u)) * x.z[s].x;
        sum += float(n[s + 1u] * int(a >> 16)) * (x.z[s + 1u].x * 0.25);
        least += float(b & 15u) * x.z[s].y + float(b >> 16) * x.z[s + 1u].y;
    }
    return dm.x * sum - dm.y * least;
}
#endif

float unit_dot(uint row, uint units, uint i, Inputs x) {
    return unit_dot_of(unit_fetch(row, units, i), i, x);
}
