// Cooperative matrices of one subgroup, f16 factors and f32 sums (GL_KHR_cooperative_matrix).
// The including shader declares the shape TM x TN x TK, one of those that the device lists.

#define MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, TM, TK, gl_MatrixUseA>
#define MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, TK, TN, gl_MatrixUseB>
#define MATRIX_C coopmat<float, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator>
#define MATRIX_HALF coopmat<float16_t, gl_ScopeSubgroup, TM, TN, gl_MatrixUseAccumulator>
#define CELLS(m) m.length()
#define CELL(m, i) m[i]

// What one invocation of a subgroup wrote to shared memory becomes visible to the others
void subgroup_exchange() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

// Finite values beyond the range of f16 become its largest; infinities and NaN stay
vec2 half_range(vec2 v) {
    return mix(v, clamp(v, -65504.0, 65504.0), lessThan(abs(v), vec2(3.4e38)));
}

uint half_pair(float a, float b) { return packHalf2x16(half_range(vec2(a, b))); }
