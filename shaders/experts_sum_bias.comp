#version 450
#extension GL_GOOGLE_include_directive : require
// As experts_sum.comp, with a bias per expert.
#include "types.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;

READS(0, vec4, x)
READS(1, vec2, route)
READS(2, uint, place)
UPDATES(3, vec4, y)
READS(4, uint, step)
WEIGHT(5, b)
PUSH { uint cols; uint slots; PLANES(b); } p;

void main() {
    uint token = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x, width = p.cols / 4u;
    if (step[STEP_STOP] != 0u || token >= step[STEP_N] || i >= width) return;
    vec4 sum = y[token * width + i];
    for (uint s = 0u; s < p.slots; s++) {
        vec2 choice = route[token * p.slots + s];
        if (choice.x < 0.0) continue;
        vec4 bias = uintBitsToFloat(b4[p.b_p0 / 4u + uint(choice.x) * width + i]);
        sum += choice.y * (x[place[token * p.slots + s] * width + i] + bias);
    }
    y[token * width + i] = sum;
}
