#version 450
#extension GL_GOOGLE_include_directive : require
// Sets words of a buffer to one value.
#include "types.glsl"

layout(local_size_x_id = 0) in;

UPDATES(0, uint, dst)
PUSH { uint word; uint count; uint value; } p;

void main() {
    uint i = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x
        + gl_LocalInvocationID.x;
    if (i < p.count) dst[p.word + i] = p.value;
}
