// Packed products of four signed bytes, for shaders with int8 factors.
// Needs shaderIntegerDotProduct (SPV_KHR_integer_dot_product, core in SPIR-V 1.6).
#extension GL_EXT_spirv_intrinsics : require

spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018],
                  id = 4450)
int signed_dot4(uint a, uint b, spirv_literal int packed_4x8);

int dot16(uvec4 a, uvec4 b) {
    return signed_dot4(a.x, b.x, 0) + signed_dot4(a.y, b.y, 0) + signed_dot4(a.z, b.z, 0)
        + signed_dot4(a.w, b.w, 0);
}
