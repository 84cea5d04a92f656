// Expert of a workgroup's slot in experts_q8.glsl, -1 where it has none, from the router's logits: the
// first subgroup chooses. Slots from USED on are shared experts.

layout(constant_id = 8) const uint EXPERTS = 8u;  // routed ones
layout(constant_id = 9) const uint USED = 2u;
#include "router_choice.glsl"

shared float chosen_expert;

// The first workgroup of the last slot has to know all of them, and writes them down
void choose_slot(uint slot, bool stopped) {
    uint lane = gl_SubgroupInvocationID;
    bool writes = gl_WorkGroupID.x == 0u && slot == USED - 1u && p.first == 0u;
    float prob[EACH], bias[EACH], own;
    FLAT for (uint i = 0u; i < EACH; i++) {
        uint e = lane + i * SUBGROUP, at = min(e, EXPERTS - 1u);
        bias[i] = uintBitsToFloat(b[p.b_p0 + EXPERTS + at]);
        prob[i] = uintBitsToFloat(b[p.b_p0 + at]) + (e < EXPERTS ? logits[at] : NEVER);
    }
    bool all = writes || p.top_p < 1.0;
    uint mine = choose(prob, bias, lane, all ? USED : slot + 1u, own);
    vec2 choice = vec2(mine, 0.0);
    if (all) choice = entry(mine, own, lane);
    if (lane == slot) chosen_expert = choice.x;
    if (!writes || stopped) return;
    if (lane < USED) route[lane] = choice;
    for (uint i = USED + lane; i < SLOTS; i += SUBGROUP) route[i] = vec2(EXPERTS + i - USED, 1.0);
}

float chosen_of(uint slot, bool stopped) {
    if (slot >= USED) return float(EXPERTS + slot - USED);
    if (gl_SubgroupID == 0u) choose_slot(slot, stopped);
    barrier();
    return chosen_expert;
}
