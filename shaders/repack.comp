#version 450
#extension GL_GOOGLE_include_directive : require
// One plane of a matrix out of blocks as a file holds them: bytes [offset, offset + size) of every
// block and zeros up to `stride`, end to end. One invocation per word of the plane.
#include "types.glsl"

layout(local_size_x_id = 0) in;

READS(0, uint, src)
UPDATES(1, uint, dst)
PUSH {
    uint src_byte;     // where the first block starts in src
    uint block_bytes; uint offset; uint size; uint stride;
    uint plane_bytes;  // bytes to write; the rest of the last word is zero
    uint dst_word;
} p;

uint src_at(uint at) { return (src[at >> 2] >> (8u * (at & 3u))) & 0xFFu; }

void main() {
    uint i = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x
        + gl_LocalInvocationID.x;
    uint first = i * 4u;
    if (first >= p.plane_bytes) return;
    uint word = 0u;
    uint block = first / p.stride, at = first % p.stride;
    for (uint j = 0u; j < 4u && first + j < p.plane_bytes; j++) {
        if (at < p.size)
            word |= src_at(p.src_byte + block * p.block_bytes + p.offset + at) << (8u * j);
        if (++at == p.stride) { at = 0u; block++; }
    }
    dst[p.dst_word + i] = word;
}
