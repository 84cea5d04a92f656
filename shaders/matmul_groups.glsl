// Which tokens and which matrix a workgroup of a product works on.
// EXPERTS: matrix z belongs to expert first + z, whose tokens are the rows start[] says (see
// experts_sort.comp); its rows begin row0 rows into the weights, matrices one after another; in the
// gated form the partners of gates lie `up` rows further on.
// HEADS: matrix z takes x_head values of x further on and writes y_head values further on.
// Otherwise all tokens of the batch and the one matrix.
#if defined(EXPERTS)
#define FIRST_TOKEN start[p.first + gl_WorkGroupID.z]
#define TOKENS start[p.first + gl_WorkGroupID.z + 1u]
#define MATRIX_ROW (p.row0 + gl_WorkGroupID.z * p.rows)
#define PARTNER p.up
#define X_ROW(tok) ((tok) * p.x_stride)
#define Y_ROW(tok) ((tok) * p.y_stride + p.y_off)
#elif defined(HEADS)
#define FIRST_TOKEN 0u
#define TOKENS step[STEP_N]
#define MATRIX_ROW (gl_WorkGroupID.z * p.rows)
#define X_ROW(tok) ((tok) * p.x_stride + gl_WorkGroupID.z * p.x_head)
#define Y_ROW(tok) ((tok) * p.y_stride + p.y_off + gl_WorkGroupID.z * p.y_head)
#else
#define FIRST_TOKEN 0u
#define TOKENS step[STEP_N]
#define MATRIX_ROW 0u
#define PARTNER p.rows
#define X_ROW(tok) ((tok) * p.x_stride)
#define Y_ROW(tok) ((tok) * p.y_stride + p.y_off)
#endif
