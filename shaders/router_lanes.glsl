// router_token by subgroups: a workgroup makes the logit of one expert, all of its loads on their
// way at once; the first subgroup of the one that finishes last chooses, expert e in lane
// e % SUBGROUP, slot i in lane i. Rules as in router.glsl, without groups.
//
// spec: 0 workgroup, 1 EXPERTS, 3 USED (at most SUBGROUP), 4 SHARED, 5 subgroup size, 6 COLS

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64u;
layout(constant_id = 1) const uint EXPERTS = 8u;
layout(constant_id = 3) const uint USED = 2u;
layout(constant_id = 4) const uint SHARED = 0u;
layout(constant_id = 5) const uint SUBGROUP = 8u;
layout(constant_id = 6) const uint COLS = 64u;

const float NEVER = -3.0e38;
const uint SLOTS = USED + SHARED, SUBGROUPS = WORKGROUP / SUBGROUP;
const uint STEPS = (COLS / 4u + WORKGROUP - 1u) / WORKGROUP;
const uint EACH = (EXPERTS + SUBGROUP - 1u) / SUBGROUP;  // experts of a lane

shared vec2 partial[SUBGROUPS];

// Order of floats as that of numbers above 0; NaN comes last
uint ordered(float v) {
    uint u = floatBitsToUint(v > NEVER ? v : NEVER);
    return (u >> 31) != 0u ? ~u : u | 0x80000000u;
}

// The logit of the workgroup's expert, in the first subgroup
float logit(uint t, uint expert) {
    vec4 v[STEPS], gain[STEPS], row[STEPS];
    FLAT for (uint i = 0u; i < STEPS; i++) {
        uint c = min(t + i * WORKGROUP, COLS / 4u - 1u);
        row[i] = uintBitsToFloat(w4[p.w_p0 / 4u + expert * (COLS / 4u) + c]);
        v[i] = x[c] * (t + i * WORKGROUP < COLS / 4u ? 1.0 : 0.0);
        gain[i] = uintBitsToFloat(g4[p.g_p0 / 4u + c]);
    }
    vec2 sums = vec2(0.0);
    FLAT for (uint i = 0u; i < STEPS; i++)
        sums += vec2(dot(v[i] * gain[i], row[i]), dot(v[i], v[i]));
    for (uint d = SUBGROUP / 2u; d > 0u; d /= 2u) sums += subgroupShuffleXor(sums, d);
    if (gl_SubgroupInvocationID == 0u) partial[gl_SubgroupID] = sums;
    barrier();
    sums = vec2(0.0);
    FLAT for (uint i = 0u; i < SUBGROUPS; i++) sums += partial[i];
    return sums.x * inversesqrt(sums.y / float(COLS) + p.eps);
}

// Values of the gating function, from logits
void gate(inout float prob[EACH], uint lane) {
    if (p.gating == 2u) return;
    float most = NEVER, sum = 0.0;
    FLAT for (uint i = 0u; i < EACH; i++) most = max(most, prob[i]);
    most = subgroupMax(most);
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

void choose(float prob[EACH], float bias[EACH], uint lane) {
    uint key[EACH], mine = 0u;
    float own = 0.0;
    gate(prob, lane);
    FLAT for (uint i = 0u; i < EACH; i++)
        key[i] = lane + i * SUBGROUP < EXPERTS ? ordered(prob[i] + bias[i]) : 0u;
    for (uint slot = 0u; slot < USED; slot++) {
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
    float share = weight_of(own, lane);
    if (lane < USED) route[lane] = share < 0.0 ? vec2(-1.0, 0.0) : vec2(mine, share);
    for (uint i = lane; i < SHARED; i += SUBGROUP) route[USED + i] = vec2(EXPERTS + i, 1.0);
}

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
    choose(prob, bias, lane);
}
