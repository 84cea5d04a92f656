// Scores and logits within soft bounds (Gemma 2, arXiv:2408.00118): cap tanh(x / cap), all where cap
// is 0. Beyond 15 tanh is 1 to the last bit, and some drivers overflow there.
float capped(float x, float cap) { return cap * tanh(clamp(x / cap, -15.0, 15.0)); }
