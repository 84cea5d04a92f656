// Choice of experts by one subgroup: expert e in lane e % SUBGROUP, slot i in lane i, one largest
// score after the other. Rules as in router.glsl, without groups.
// The including shader declares the constants EXPERTS, USED (at most SUBGROUP) and SUBGROUP, and
// p.gating, p.scale, p.sum_floor, p.top_p.

const float NEVER = -3.0e38;
const uint EACH = (EXPERTS + SUBGROUP - 1u) / SUBGROUP;  // experts of a lane

// Order of floats as that of numbers above 0; NaN comes last
uint ordered(float v) {
    uint u = floatBitsToUint(v > NEVER ? v : NEVER);
    return (u >> 31) != 0u ? ~u : u | 0x80000000u;
}

// Values of the gating function, from logits
void gate(inout float prob[EACH], uint lane) {
    if (p.gating == 2u) return;
    float most = NEVER, sum = 0.0;
    if (p.gating == 0u) {
        FLAT for (uint i = 0u; i < EACH; i++) most = max(most, prob[i]);
        most = subgroupMax(most);
    }
    FLAT for (uint i = 0u; i < EACH; i++) {
        prob[i] = p.gating == 0u ? exp(prob[i] - most) : 1.0 / (1.0 + exp(-prob[i]));
        sum += lane + i * SUBGROUP < EXPERTS ? prob[i] : 0.0;
    }
    if (p.gating != 0u) return;
    sum = subgroupAdd(sum);
    FLAT for (uint i = 0u; i < EACH; i++) prob[i] /= sum;
}

// Weights of the chosen, slot i in lane i: what is left of `prob`
float weight_of(float prob, uint lane) {
    bool used = lane < USED;
    float share = used ? prob : 0.0;
    if (p.gating == 2u) {
        float most = subgroupMax(used ? prob : NEVER);
        share = used ? exp(prob - most) : 0.0;
        share /= subgroupAdd(share);
    }
    if (p.top_p < 1.0) {
        float sum = subgroupAdd(share), before = subgroupExclusiveAdd(share);
        if (lane > 0u && before >= p.top_p * sum) share = -1.0;
    }
    float kept = subgroupAdd(max(share, 0.0));
    return share * p.scale / (p.sum_floor > 0.0 ? max(kept, p.sum_floor) : 1.0);
}

// The expert of slot `lane` for the first `count` slots, from logits with their bias and what is added
// to scores; `own` is its probability.
uint choose(float prob[EACH], float bias[EACH], uint lane, uint count, out float own) {
    uint key[EACH], mine = 0u;
    own = 0.0;
    gate(prob, lane);
    FLAT for (uint i = 0u; i < EACH; i++)
        key[i] = lane + i * SUBGROUP < EXPERTS ? ordered(prob[i] + bias[i]) : 0u;
    for (uint slot = 0u; slot < count; slot++) {
        uint best = 0u, at = 0xFFFFFFFFu;
        FLAT for (uint i = 0u; i < EACH; i++) best = max(best, key[i]);
        best = subgroupMax(best);
        FLAT for (uint i = 0u; i < EACH; i++)
            if (key[i] == best) at = min(at, lane + i * SUBGROUP);
        at = subgroupMin(at);
        float value = 0.0;
        FLAT for (uint i = 0u; i < EACH; i++) {
            if (at != lane + i * SUBGROUP) continue;
            value = prob[i];
            key[i] = 0u;
        }
        value = subgroupShuffle(value, at % SUBGROUP);
        if (lane == slot) {
            mine = at;
            own = value;
        }
    }
    return mine;
}

// Entry of slot `lane` of the route
vec2 entry(uint expert, float own, uint lane) {
    float share = weight_of(own, lane);
    return share < 0.0 ? vec2(-1.0, 0.0) : vec2(expert, share);
}
