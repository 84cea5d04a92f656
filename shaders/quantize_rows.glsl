// Body of the quantize family: rows of a batch as f16 (F16), int8 blocks of 32 (Q8) or f32 (F32), the
// form that the products of whole batches read. One workgroup per row, 8 values per invocation and round.
// The including shader declares the buffers and `vec4 value4(uint row, uint i)`: values 4 i ….
//
// A row of Q8 is cols / 4 words of signed bytes, then for each block of 32 (scale, scale * sum of
// the block's quants) as two f32; scale = largest magnitude / 127, rounded half to even.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;

#ifdef Q8
shared float most[WORKGROUP], total[WORKGROUP];

float magnitude(vec4 a, vec4 b) {
    vec4 m = max(abs(a), abs(b));
    return max(max(m.x, m.y), max(m.z, m.w));
}

uint packed(ivec4 q) {
    uvec4 u = uvec4(q) & 0xFFu;
    return u.x | (u.y << 8) | (u.z << 16) | (u.w << 24);
}

// Four neighbours share a block; every invocation of the workgroup takes part
void write8(uint row, uint i, bool real, vec4 a, vec4 b) {
    uint t = gl_LocalInvocationID.x, lead = t & ~3u;
    most[t] = magnitude(a, b);
    barrier();
    float m = max(max(most[lead], most[lead + 1u]), max(most[lead + 2u], most[lead + 3u]));
    float inverse = m > 0.0 ? 127.0 / m : 0.0;
    vec4 qa = roundEven(a * inverse), qb = roundEven(b * inverse);
    total[t] = dot(qa, vec4(1.0)) + dot(qb, vec4(1.0));
    barrier();
    if (!real) return;
    uint base = row * p.y_stride / 2u;
    y[base + i] = uvec2(packed(ivec4(qa)), packed(ivec4(qb)));
    if (t != lead) return;
    float sum = total[t] + total[t + 1u] + total[t + 2u] + total[t + 3u];
    y[base + p.cols / 8u + i / 4u] = floatBitsToUint(vec2(m / 127.0, m / 127.0 * sum));
}
#elif defined(F32)
void write8(uint row, uint i, bool real, vec4 a, vec4 b) {
    if (!real) return;
    uint at = row * p.y_stride / 2u + i * 4u;
    y[at] = floatBitsToUint(a.xy);
    y[at + 1u] = floatBitsToUint(a.zw);
    y[at + 2u] = floatBitsToUint(b.xy);
    y[at + 3u] = floatBitsToUint(b.zw);
}
#else
// Finite values beyond the range of f16 become its largest; infinities and NaN stay
uint half_pair(vec2 v) {
    return packHalf2x16(mix(v, clamp(v, -65504.0, 65504.0), lessThan(abs(v), vec2(3.4e38))));
}

void write8(uint row, uint i, bool real, vec4 a, vec4 b) {
    if (!real) return;
    uint at = row * p.y_stride / 4u + i * 2u;
    y[at] = uvec2(half_pair(a.xy), half_pair(a.zw));
    y[at + 1u] = uvec2(half_pair(b.xy), half_pair(b.zw));
}
#endif

void write_row(uint row) {
    for (uint first = 0u; first < p.cols / 8u; first += WORKGROUP) {
        uint i = first + gl_LocalInvocationID.x;
        bool real = i < p.cols / 8u;
        vec4 a = vec4(0.0), b = vec4(0.0);
        if (real) {
            a = value4(row, 2u * i);
            b = value4(row, 2u * i + 1u);
        }
        write8(row, i, real, a, b);
    }
}
