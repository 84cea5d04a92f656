#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require
// How fast matrix cores are: every subgroup makes four products of cooperative matrices a step,
// over factors in which all values are equal (so that the result does not depend on the shape).
//
// spec: 0 workgroup size, 1 subgroup size, 2 TM, 3 TN, 4 TK.
#include "types.glsl"

WRITES(0, float, y)
PUSH { uint count; uint depth; float left; float right; } p;  // results; columns of the factors

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;
layout(constant_id = 1) const uint SUBGROUP = 32u;
layout(constant_id = 2) const uint TM = 16u;
layout(constant_id = 3) const uint TN = 16u;
layout(constant_id = 4) const uint TK = 16u;

#include "matmul_coop_types.glsl"

const uint LEFT = TM * TK / 8u, RIGHT = TN * TK / 8u;  // vectors of 8 values
shared uvec4 tile[LEFT + RIGHT];

void main() {
    for (uint i = gl_LocalInvocationID.x; i < LEFT + RIGHT; i += WORKGROUP)
        tile[i] = uvec4(half_pair(i < LEFT ? p.left : p.right, i < LEFT ? p.left : p.right));
    barrier();
    MATRIX_A a[2];
    MATRIX_B b[2];
    MATRIX_C sums[4];
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        coopMatLoad(a[i], tile, 0u, TK / 8u, gl_CooperativeMatrixLayoutRowMajor);
        coopMatLoad(b[i], tile, LEFT, TK / 8u, gl_CooperativeMatrixLayoutColumnMajor);
    }
    [[unroll]] for (uint i = 0u; i < 4u; i++) sums[i] = MATRIX_C(0.0);
    for (uint k = 0u; k < p.depth; k += TK) {
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            sums[i] = coopMatMulAdd(a[i / 2u], b[i % 2u], sums[i]);
    }
    uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint at = (group * (WORKGROUP / SUBGROUP) + gl_SubgroupID) * 4u * TM * TN;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        if (at + (i + 1u) * TM * TN <= p.count)
            coopMatStore(sums[i], y, at + i * TM * TN, TN, gl_CooperativeMatrixLayoutRowMajor);
    }
}
