// Body of the matmul family: a tile of BM weight rows times BN tokens per workgroup, weights
// decoded into shared memory one chunk of 32 columns at a time, 4 x 4 results per invocation.
//
// spec: 0 workgroup size = BM / 4 * BN / 4, 1 BM, 2 BN. Shared memory: (BM + BN) * 33 * 4 bytes.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128u;
layout(constant_id = 1) const uint BM = 64u;
layout(constant_id = 2) const uint BN = 32u;

const uint PITCH = 33u;  // one word of padding keeps columns in different banks
shared float wt[BM * PITCH];
shared float xt[BN * PITCH];

void main() {
    uint n = step[STEP_N];
    uint row0 = gl_WorkGroupID.x * BM, tok0 = gl_WorkGroupID.y * BN;
    if (step[STEP_STOP] != 0u || tok0 >= n) return;
    uint t = gl_LocalInvocationID.x;
    uint ti = (t % (BM / 4u)), tj = (t / (BM / 4u));  // rows ti + BM/4 * i, tokens tj * 4 + j
    uint chunks = p.cols / 32u;
    float acc[4][4];
    for (uint i = 0u; i < 4u; i++)
        for (uint j = 0u; j < 4u; j++) acc[i][j] = 0.0;
    for (uint c = 0u; c < chunks; c++) {
        for (uint r = t; r < BM; r += WORKGROUP) {
            uint row = min(row0 + r, p.rows - 1u);
            vec4 a[4], b[4];
            chunk_values(row * chunks + c, a, b);
            for (uint k = 0u; k < 16u; k++) {
                wt[r * PITCH + k] = a[k >> 2][k & 3u];
                wt[r * PITCH + 16u + k] = b[k >> 2][k & 3u];
            }
        }
        uint ca = chunk_a(c), cb = chunk_b(c) - 16u;
        for (uint e = t; e < BN * 32u; e += WORKGROUP) {
            uint k = e & 31u, tok = min(tok0 + (e >> 5), n - 1u);
            xt[(e >> 5) * PITCH + k] = x[tok * p.x_stride + (k < 16u ? ca : cb) + k];
        }
        barrier();
        for (uint k = 0u; k < 32u; k++) {
            float xv[4], wv[4];
            for (uint j = 0u; j < 4u; j++) xv[j] = xt[(tj * 4u + j) * PITCH + k];
            for (uint i = 0u; i < 4u; i++) wv[i] = wt[(ti + i * (BM / 4u)) * PITCH + k];
            for (uint i = 0u; i < 4u; i++)
                for (uint j = 0u; j < 4u; j++) acc[i][j] = fma(wv[i], xv[j], acc[i][j]);
        }
        barrier();
    }
    for (uint j = 0u; j < 4u; j++) {
        uint tok = tok0 + tj * 4u + j;
        if (tok >= n) break;
        for (uint i = 0u; i < 4u; i++) {
            uint row = row0 + ti + i * (BM / 4u);
            uint at = tok * p.y_stride + p.y_off + row;
#ifdef ADD
            if (row < p.rows) y[at] += acc[i][j];
#else
            if (row < p.rows) y[at] = acc[i][j];
#endif
        }
    }
}
