// Sampling, first half: penalties on every logit, ordered keys, and the best of each group.
// Ids that the file suppresses get the key of logits that are not finite: they are never drawn.
//
// A group is `group` neighbouring ids. The k best ids of the vocabulary all lie in the k groups
// with the best maxima, so sample_pick reads n_vocab / group maxima and k groups, not n_vocab keys.
// The largest and the least of the maxima are found on the way: `best` has a row more for them, of
// zeros at first, to which sample_pick brings it back.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step.glsl"
#include "sample_common.glsl"

READS(0, float, logits)   // (1, n_vocab)
READS(1, uint, settings)
READS(2, uint, counts)    // (n_vocab) occurrences in the penalty window
UPDATES(3, uint, step)
WRITES(4, uint, keys)     // (n_vocab)
UPDATES(5, uvec2, best)   // (groups + 1): largest key, lowest id that has it; in the last one the
                          // largest key of all, the complement of the least that is usable

PUSH { uint n_vocab; uint group; } p;

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128u;
const uint EACH = 4u; // neighbouring ids per invocation

const uint LEAST = 8u; // invocations that share the smallest group

shared uint group_key[THREADS / LEAST];
shared uint group_id[THREADS / LEAST];
shared uint bad_total;
shared uint ends[2]; // as in the last row of `best`, of this workgroup

float penalized(float x, uint count) {
    x *= uintBitsToFloat(settings[x > 0.0 ? SET_INV_REPEAT : SET_REPEAT]);
    precise float cost = float(count) * uintBitsToFloat(settings[SET_FREQUENCY]);
    cost = cost + uintBitsToFloat(settings[SET_PRESENCE]);
    precise float y = x - cost;
    return clamp(y, -3.4028235e38, 3.4028235e38); // a finite logit stays finite
}

// Index of the first of `count` suppressed ids that is not below `id`.
uint find_suppressed(uint id, uint count) {
    uint low = 0u, high = count;
    while (low < high) {
        uint middle = (low + high) / 2u;
        if (settings[SET_SUPPRESSED + middle] < id) low = middle + 1u;
        else high = middle;
    }
    return low;
}

struct Scanned {
    uint first, silent, window; // its first id, settings
    float x[EACH];
};

// What an invocation reads before it waits for anything.
Scanned read_logits() {
    Scanned a;
    a.first = gl_GlobalInvocationID.x * EACH;
    a.silent = settings[SET_N_SUPPRESSED];
    a.window = settings[SET_WINDOW];
    for (uint i = 0u; i < EACH; i++)
        a.x[i] = a.first + i < p.n_vocab ? logits[a.first + i] : 0.0;
    return a;
}

void scan_ids(Scanned a) {
    uint t = gl_LocalInvocationID.x;
    if (t == 0u) bad_total = 0u;
    if (t < 2u) ends[t] = 0u;
    if (t < THREADS / LEAST) {
        group_key[t] = 0u;
        group_id[t] = ~0u;
    }
    barrier();
    uint top = 0u, top_id = a.first, bad = 0u;
    uint next = find_suppressed(a.first, a.silent);
    for (uint i = 0u; i < EACH && a.first + i < p.n_vocab; i++) {
        uint id = a.first + i, key = order_key(a.x[i]);
        bool suppressed = next < a.silent && settings[SET_SUPPRESSED + next] == id;
        if (suppressed) next++;
        if (key == 0u) bad++;
        else if (suppressed) key = 0u;
        else if (a.window != 0u && counts[id] != 0u)
            key = order_key(penalized(a.x[i], counts[id]));
        keys[id] = key;
        if (key > top) { top = key; top_id = id; }
    }
    uint quads = p.group / EACH, mine = t / quads; // invocations that share a group, their group
    if (top != 0u) atomicMax(group_key[mine], top);
    if (bad != 0u) atomicAdd(bad_total, bad);
    barrier();
    if (t == 0u && bad_total != 0u) atomicAdd(step[STEP_BAD], bad_total);
    if (top != 0u && top == group_key[mine]) atomicMin(group_id[mine], top_id);
    uint key = t < THREADS / quads ? group_key[t] : 0u;
    if (key != 0u) {
        atomicMax(ends[0], key);
        atomicMax(ends[1], ~key);
    }
    barrier();
    uint index = gl_WorkGroupID.x * (THREADS / quads) + t;
    if (t < THREADS / quads && index * p.group < p.n_vocab) {
        best[index] = uvec2(key, key != 0u ? group_id[t] : index * p.group);
    }
    uint last = (p.n_vocab + p.group - 1u) / p.group;
    if (t == 0u && ends[0] != 0u) {
        atomicMax(best[last].x, ends[0]);
        atomicMax(best[last].y, ends[1]);
    }
}

void main() {
    Scanned ids = read_logits(); // on its way before the stop flag is waited for
    if (step[STEP_STOP] == 0u) scan_ids(ids);
}
