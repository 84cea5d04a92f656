#version 450
#extension GL_GOOGLE_include_directive : require
// y += the weighted results of a token's experts, always added in the order of its slots.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

READS(0, vec4, x)
READS(1, vec2, route)
READS(2, uint, place)
UPDATES(3, vec4, y)
READS(4, uint, step)
PUSH { uint cols; uint slots; } p;

void main() {
    uint token = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
    if (step[STEP_STOP] != 0u || token >= step[STEP_N] || i >= p.cols / 4u) return;
    vec4 sum = y[token * (p.cols / 4u) + i];
    for (uint s = 0u; s < p.slots; s++) {
        vec2 choice = route[token * p.slots + s];
        if (choice.x < 0.0) continue;
        sum += choice.y * x[place[token * p.slots + s] * (p.cols / 4u) + i];
    }
    y[token * (p.cols / 4u) + i] = sum;
}
