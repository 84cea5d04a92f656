// How gate and up of an expert become its inner vector. BIAS (gpt-oss): biases of row `row` of gate
// and up are added, both are limited, the gate's sigmoid is steeper (ggml's swiglu_oai).
#ifdef SWIGLU
#ifdef BIAS
const float STEEP = 1.702, LIMIT = 7.0;

float gated(float gate, float up, uint row) {
    gate = min(gate + uintBitsToFloat(b[p.b_p0 + row]), LIMIT);
    up = clamp(up + uintBitsToFloat(b[p.b_p0 + p.experts * p.rows + row]), -LIMIT, LIMIT);
    return gate / (1.0 + exp(-STEEP * gate)) * (up + 1.0);
}
#else
float gated(float gate, float up, uint row) { return gate / (1.0 + exp(-gate)) * up; }
#endif
#endif
