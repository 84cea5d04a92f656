// The slots of a route whose experts a stack holds, without gaps: slot_at, expert_at and share_at
// of the s-th one. Lanes hold them and pass them on; where a subgroup has fewer lanes than there
// are slots, shared memory does. Every lane of a subgroup has to ask at once.
// The including shader declares WORKGROUP, SUBGROUP, SLOTS, route[], p.first and p.experts.

const bool BY_LANES = SUBGROUP >= SLOTS;
const uint HELD = BY_LANES ? 1u : SLOTS;

struct Slots { uint found; uint slot; uint expert; float share; };

shared uint slot_of[HELD], expert_of[HELD], found_slots;
shared float share_of[HELD];

uint expert_of_route(vec2 choice) {
    return choice.x < 0.0 ? 0xFFFFFFFFu : uint(choice.x) - p.first;
}

Slots slots_by_lanes() {
    uint lane = gl_SubgroupInvocationID, n = 0u, from = 0u;
    vec2 choice = route[min(lane, SLOTS - 1u)];
    uint expert = expert_of_route(choice);
    FLAT for (uint i = 0u; i < SLOTS; i++) {
        bool held = subgroupShuffle(expert, i) < p.experts;
        if (held && n == lane) from = i;
        if (held) n++;
    }
    return Slots(n, from, subgroupShuffle(expert, from), subgroupShuffle(choice.y, from));
}

Slots slots_shared(uint t) {
    if (t == 0u) {
        uint n = 0u;
        for (uint s = 0u; s < SLOTS; s++) {
            vec2 choice = route[s];
            uint expert = expert_of_route(choice);
            if (expert >= p.experts) continue;
            slot_of[n] = s;
            expert_of[n] = expert;
            share_of[n] = choice.y;
            n++;
        }
        found_slots = n;
    }
    barrier();
    return Slots(found_slots, 0u, 0u, 0.0);
}

Slots find_slots(uint t) {
    if (BY_LANES) return slots_by_lanes();
    return slots_shared(t);
}

uint slot_at(Slots a, uint s) { return BY_LANES ? subgroupShuffle(a.slot, s) : slot_of[s]; }

uint expert_at(Slots a, uint s) { return BY_LANES ? subgroupShuffle(a.expert, s) : expert_of[s]; }

float share_at(Slots a, uint s) { return BY_LANES ? subgroupShuffle(a.share, s) : share_of[s]; }
