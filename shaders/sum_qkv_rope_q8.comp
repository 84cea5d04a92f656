#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
// build: [Q4_0|Q4_1|Q5_0|Q5_1|Q8_0]
// Queries, keys and values of a narrow model: the residual stream from its parts (narrow_sum.glsl),
// norm, product, rotation and cache write, as qkv_rope_q8. Row 0 of `sum` becomes the stream.
#define NORM 1
#define KV16 1
#include "types.glsl"
#include "step.glsl"

WEIGHT(0, w)
WEIGHT(1, g)
READS(2, vec4, x)
UPDATES(3, vec4, sum)
UPDATES(4, float, y)
READS(5, vec2, rope)
UPDATES(6, uint, k)
UPDATES(7, uint, v)
READS(8, uint, step)
PUSH { uint rows; float eps; uint n_head; uint n_head_kv; uint head_dim; uint n_rot; uint k_base;
    uint v_base; PLANES(g); PLANES(w); } p;

// behind those of narrow_sum.glsl
layout(constant_id = 5) const uint LANES = 2u;
layout(constant_id = 6) const uint ROWS = 2u;  // neighbours, of a group of lanes; even
layout(constant_id = 7) const uint RING = 0u;  // rows of the caches (cache.glsl)

#include "cache.glsl"
#include "rope_pair.glsl"
#include "narrow_sum.glsl"
#include "narrow_rows.glsl"

const uint COUNT = COLS / 32u, OWN = (COUNT + LANES - 1u) / LANES, GROUPS = WORKGROUP / LANES;

void keep(uint n, vec4 own) { sum[n] = own; }

#define CHUNK min(row0 + r, p.rows - 1u) * COUNT

void main() {
    bool stopped = step[STEP_STOP] != 0u;
    uint pos = step[STEP_POS];
    uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    uint row0 = (gl_WorkGroupID.x * GROUPS + t / LANES) * ROWS;
    Chunk chunks[ROWS * OWN];
    LOAD_ROWS(chunks, chunk_fetch, ROWS, OWN, COUNT, LANES, CHUNK)
    if (!sum_parts(t, gl_WorkGroupID.x == 0u, stopped)) return;
    vec2 cs[ROWS / 2u];
    FLAT for (uint i = 0u; i < ROWS / 2u; i++) cs[i] = turn(min(row0 + 2u * i, p.rows - 1u), pos);
    float made[ROWS];
    MULTIPLY_ROWS(made, chunks, ROWS, OWN, COUNT, LANES, CHUNK, 0u)
    float norm = inverse_rms();
    if (t % LANES != 0u) return;
    FLAT for (uint i = 0u; i < ROWS / 2u; i++)
        if (row0 + 2u * i < p.rows)
            store_pair(row0 + 2u * i, pos, cs[i], made[2u * i] * norm, made[2u * i + 1u] * norm);
}
