// What the gate of a feed-forward network lets through, by activation: GELU (GEGLU defined; the
// approximation by tanh, Hendrycks and Gimpel 2016) or SiLU. T is float or vec4.
// gelu(x) = x / 2 (1 + tanh(z)) = x / (1 + exp(-2 z)), z = sqrt(2 / pi) (x + 0.044715 x^3)

#ifdef GEGLU
#define ACTIVATED(T) \
    T activated(T x) { return x / (1.0 + exp(-1.5957691216 * (x + 0.044715 * x * x * x))); }
#else
#define ACTIVATED(T) \
    T activated(T x) { return x / (1.0 + exp(-x)); }
#endif

ACTIVATED(float)
ACTIVATED(vec4)
