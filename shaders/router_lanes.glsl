// router_token by subgroups: a workgroup makes the logit of one expert; the first subgroup of the one
// that finishes last chooses.
//
// spec: 0 workgroup, 1 EXPERTS, 3 USED (at most SUBGROUP), 4 SHARED, 5 subgroup size, 6 COLS

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint EXPERTS = 8u;
layout(constant_id = 3) const uint USED = 2u;
layout(constant_id = 4) const uint SHARED = 0u;
layout(constant_id = 5) const uint SUBGROUP = 8u;
layout(constant_id = 6) const uint COLS = 64u;

#include "router_row.glsl"
#include "router_choice.glsl"

void main() {
    uint lane = gl_SubgroupInvocationID, expert = gl_WorkGroupID.x;
    bool stopped = step[STEP_STOP] != 0u;
    float prob[EACH], bias[EACH];
    if (gl_SubgroupID == 0u)  // for the last one, which waits for nothing but the logits then
        FLAT for (uint i = 0u; i < EACH; i++) {
            uint e = min(lane + i * SUBGROUP, EXPERTS - 1u);
            prob[i] = uintBitsToFloat(b[p.b_p0 + e]);
            bias[i] = uintBitsToFloat(b[p.b_p0 + EXPERTS + e]);
        }
    float own = logit(gl_SubgroupID * SUBGROUP + lane, expert);
    if (stopped || gl_SubgroupID != 0u) return;
    uint done = 0u;
    if (lane == 0u) {
        logits[expert] = own;
        memoryBarrierBuffer();
        done = atomicAdd(arrived[0], 1u) + 1u;
    }
    if (subgroupShuffle(done, 0u) != gl_NumWorkGroups.x) return;
    memoryBarrierBuffer();
    if (lane == 0u) arrived[0] = 0u;
    FLAT for (uint i = 0u; i < EACH; i++) {
        uint e = lane + i * SUBGROUP;
        prob[i] += e < EXPERTS ? logits[e] : NEVER;
    }
    float value;
    uint mine = choose(prob, bias, lane, USED, value);
    vec2 slot = entry(mine, value, lane);
    if (lane < USED) route[lane] = slot;
    for (uint i = lane; i < SHARED; i += SUBGROUP) route[USED + i] = vec2(EXPERTS + i, 1.0);
}
