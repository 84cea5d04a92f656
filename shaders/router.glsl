// Choice of experts by one workgroup, from the logits of one token: scores by the gating function,
// the best groups, the best USED experts of them, their weights. An expert's place is the number
// of experts before it, so there is no sorting; of equal scores the lower number comes first.
//
// gating: 0 softmax over all, 1 sigmoid, 2 softmax over the chosen. b holds two rows of EXPERTS
// values: what is added to the logits, and what is added to scores for the choice only.
// group_best: how many experts of a group make up its score; groups_used counts groups that stay.
// sum_floor > 0: weights are divided by their sum, or by sum_floor if that is larger.
// top_p < 1: the last experts go when those before them have that part of the weights.
//
// spec: 0 workgroup, 1 EXPERTS, 2 GROUPS, 3 USED, 4 SHARED (experts EXPERTS … every token takes)
// Shared memory: 8 * EXPERTS + 8 * GROUPS + 8 * USED bytes.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint EXPERTS = 8u;
layout(constant_id = 2) const uint GROUPS = 1u;
layout(constant_id = 3) const uint USED = 2u;
layout(constant_id = 4) const uint SHARED = 0u;

const float NEVER = -3.0e38;
const uint NOBODY = 0xFFFFFFFFu;
const uint SLOTS = USED + SHARED;

shared float prob[EXPERTS], score[EXPERTS];
shared float group_score[GROUPS];
shared uint group_kept[GROUPS];
shared uint chosen[USED];  // NOBODY: an empty slot
shared float share[USED];

float finite(float v) { return v > NEVER ? v : NEVER; }  // NaN comes last

// prob[] from logits to the gating function's values
void gate(uint t) {
    float most = NEVER;
    if (p.gating == 0u)
        for (uint e = 0u; e < EXPERTS; e++) most = max(most, prob[e]);
    barrier();
    for (uint e = t; e < EXPERTS; e += WORKGROUP)
        prob[e] = p.gating == 0u ? exp(prob[e] - most)
                : p.gating == 1u ? 1.0 / (1.0 + exp(-prob[e])) : prob[e];
    barrier();
    float sum = 0.0;
    if (p.gating == 0u)
        for (uint e = 0u; e < EXPERTS; e++) sum += prob[e];
    barrier();
    for (uint e = t; e < EXPERTS; e += WORKGROUP) {
        if (p.gating == 0u) prob[e] /= sum;
        score[e] = finite(prob[e] + uintBitsToFloat(b[p.b_p0 + EXPERTS + e]));
    }
    barrier();
}

// Scores outside of the best groups become NEVER
void drop_groups(uint t) {
    const uint SIZE = EXPERTS / GROUPS;
    for (uint g = t; g < GROUPS; g += WORKGROUP) {
        float best = NEVER, second = NEVER;
        for (uint e = g * SIZE; e < (g + 1u) * SIZE; e++) {
            second = max(second, min(best, score[e]));
            best = max(best, score[e]);
        }
        group_score[g] = p.group_best > 1u && SIZE > 1u ? best + second : best;
    }
    barrier();
    for (uint g = t; g < GROUPS; g += WORKGROUP) {
        uint before = 0u;
        for (uint o = 0u; o < GROUPS; o++)
            if (group_score[o] > group_score[g] || (group_score[o] == group_score[g] && o < g))
                before++;
        group_kept[g] = before < p.groups_used ? 1u : 0u;
    }
    barrier();
    for (uint e = t; e < EXPERTS; e += WORKGROUP)
        if (group_kept[e / SIZE] == 0u) score[e] = NEVER;
    barrier();
}

void weigh() {
    float sum = 0.0, most = NEVER;
    for (uint i = 0u; i < USED; i++) most = max(most, prob[chosen[i]]);
    for (uint i = 0u; i < USED; i++) {
        share[i] = p.gating == 2u ? exp(prob[chosen[i]] - most) : prob[chosen[i]];
        sum += share[i];
    }
    if (p.gating == 2u) {
        for (uint i = 0u; i < USED; i++) share[i] /= sum;
        sum = 1.0;
    }
    float kept = 0.0;
    for (uint i = 0u; i < USED; i++) {
        if (p.top_p < 1.0 && i > 0u && kept >= p.top_p * sum) {
            chosen[i] = NOBODY;
            share[i] = 0.0;
        }
        kept += share[i];
    }
    float factor = p.scale / (p.sum_floor > 0.0 ? max(kept, p.sum_floor) : 1.0);
    for (uint i = 0u; i < USED; i++) share[i] *= factor;
}

// prob[] holds the logits; every invocation takes part
void choose(uint token, uint t) {
    gate(t);
    if (GROUPS > 1u) drop_groups(t);
    for (uint e = t; e < EXPERTS; e += WORKGROUP) {
        float own = score[e];
        uint before = 0u;
        for (uint o = 0u; o < EXPERTS; o++)
            if (score[o] > own || (score[o] == own && o < e)) before++;
        if (before < USED) chosen[before] = e;
    }
    barrier();
    if (t == 0u) weigh();
    barrier();
    for (uint i = t; i < SLOTS; i += WORKGROUP)
        route[token * SLOTS + i] = i >= USED ? vec2(EXPERTS + i - USED, 1.0)
            : chosen[i] == NOBODY ? vec2(-1.0, 0.0) : vec2(chosen[i], share[i]);
}
