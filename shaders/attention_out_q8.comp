#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0]
// Attention over a short context and output projection of a narrow model: workgroup (h, b) attends
// for head h (attention_head.glsl), quantizes the result to int8 and multiplies block b of the
// output rows with it. Row 1 + h of y becomes the product. The workgroups of a head all attend;
// they load their weights before.
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)
READS(1, vec4, qkv)
CACHE(2, k)
CACHE(3, v)
UPDATES(4, float, y)
READS(5, uint, step)
PUSH { uint rows; uint n_head; uint n_head_kv; float scale; uint window; float softcap; uint k_base;
    uint v_base; PLANES(w); } p;

// behind those of narrow_vector.glsl
layout(constant_id = 2) const uint HEAD_DIM = 64u;  // a multiple of 32
layout(constant_id = 3) const uint LANES = 8u;      // of a position
layout(constant_id = 4) const uint UNROLL = 4u;
layout(constant_id = 5) const uint RING = 0u;  // rows of the caches (cache.glsl)
layout(constant_id = 6) const uint OUT_LANES = 1u;
layout(constant_id = 7) const uint OUT_ROWS = 1u;  // of a group of lanes
// rows of the caches, of which the first pass is loaded before the position is known; 0: it is not,
// since it may begin anywhere (windows)
layout(constant_id = 8) const uint EARLY = 0u;

#define WIDTH HEAD_DIM
#include "narrow_vector.glsl"
#include "narrow_rows.glsl"
#include "attention_head.glsl"

const uint COUNT = HEAD_DIM / 32u, OWN = (COUNT + OUT_LANES - 1u) / OUT_LANES;
const uint GROUPS = WORKGROUP / OUT_LANES, BLOCK = GROUPS * OUT_ROWS;

#define ROW (gl_WorkGroupID.y * BLOCK + r * GROUPS + t / OUT_LANES)
#define CHUNK (min(ROW, p.rows - 1u) * p.n_head + head) * COUNT

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint len = step[STEP_POS] + 1u, head = gl_WorkGroupID.x;
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    load_query(head, t % LANES);
    if (EARLY > 0u) load_some(t / LANES, EARLY);
    Chunk chunks[OUT_ROWS * OWN];
    LOAD_ROWS(chunks, chunk_fetch, OUT_ROWS, OWN, COUNT, OUT_LANES, CHUNK)
    if (stopped) return;
    uint start = p.window != 0u && len > p.window ? len - p.window : 0u;
    attend(start, len, t, EARLY > 0u);
    barrier();
    for (uint n = t; n < HEAD_DIM / 4u; n += WORKGROUP) quantize_x(n, joined(n), true);
    barrier();
    float sum[OUT_ROWS];
    MULTIPLY_ROWS(sum, chunks, OUT_ROWS, OWN, COUNT, OUT_LANES, CHUNK, 0u)
    FLAT for (uint r = 0u; r < OUT_ROWS; r++)
        if (t % OUT_LANES == 0u && ROW < p.rows) y[(1u + head) * p.rows + ROW] = sum[r];
}
