// Sampling, second half, one workgroup: top-k, top-p, min-p, temperature, draw, bookkeeping.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step.glsl"
#include "random.glsl"
#include "sample_common.glsl"

READS(0, uint, keys)       // (n_vocab) as sample_scan leaves them
READS(1, uint, best)       // (groups, 2)
READS(2, uint, settings)
UPDATES(3, uint, step)
UPDATES(4, uint, tokens)   // word 0: input of the next step
UPDATES(5, uint, counts)   // (n_vocab)
UPDATES(6, uint, history)  // (n_ctx) id + 1 by position
UPDATES(7, uint, result)   // copy of step, then the ring of generated ids

PUSH { uint n_vocab; uint group; uint n_ctx; } p;

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128u;

#include "sample_select.glsl"

const uint RING = 64u;
const uint END_TOKEN = 1u, LIMIT = 2u, NOT_FINITE = 3u; // engine/step.py StopReason

void publish() {
    for (uint i = 0u; i < STEP_WORDS; i++) result[i] = step[i];
}

void remember(uint pos, uint id) {
    uint window = settings[SET_WINDOW];
    if (window == 0u || pos >= p.n_ctx) return;
    history[pos] = id + 1u;
    counts[id]++;
    if (pos >= window && history[pos - window] != 0u) counts[history[pos - window] - 1u]--;
}

// Run by one invocation: `id` is the token at the position after the batch just computed.
void accept(uint id) {
    uint pos = step[STEP_POS] + step[STEP_N];
    uint count = step[STEP_COUNT];
    result[STEP_WORDS + count % RING] = id;
    tokens[0] = id;
    remember(pos, id);
    step[STEP_N] = 1u;
    step[STEP_POS] = pos;
    step[STEP_COUNT] = count + 1u;
    step[STEP_DRAWS]++;
    if (pos >= step[STEP_LIMIT]) step[STEP_STOP] = LIMIT;
    for (uint i = 0u; i < settings[SET_N_END]; i++)
        if (settings[SET_END + i] == id) step[STEP_STOP] = END_TOKEN;
    publish();
}

// Merges entries lane, lane + stride, ... below `count` of the reduction into entry `lane`.
void merge(uint stride, uint count) {
    if (lane < stride) {
        for (uint i = lane + stride; i < count; i += stride) {
            if (before(bin_n[i], bin_lo[i], bin_n[lane], bin_lo[lane])) {
                bin_n[lane] = bin_n[i];
                bin_lo[lane] = bin_lo[i];
            }
            bin_hi[lane] = min(bin_hi[lane], bin_hi[i]);
        }
    }
    barrier();
}

// The largest key, its lowest id (in found_id), and the scale of linear bins for what lies below.
void reduce_best(uint groups) {
    uint key = 0u, id = ~0u, low = ~0u;
    for (uint i = lane; i < groups; i += THREADS) {
        uvec2 it = item(FROM_BEST, i);
        if (before(it.x, it.y, key, id)) { key = it.x; id = it.y; }
        if (it.x != 0u) low = min(low, it.x);
    }
    bin_n[lane] = key;
    bin_lo[lane] = id;
    bin_hi[lane] = low;
    barrier();
    merge(32u, THREADS);
    merge(1u, 32u);
    top_key = bin_n[0];
    if (lane == 0u) found_id = bin_lo[0];
    float span = key_value(top_key) - key_value(bin_hi[0]);
    bin_scale = span > 1e-20 && span < 1e20 ? float(BINS) / span : 0.0;
    barrier();
}

uint draw_weight(uint key, uint id) {
    float x = key_value(key) - key_value(top_key);
    if (!kept(key, id) || x < uintBitsToFloat(settings[SET_MIN_LOG])) return 0u;
    return fixed_exp(x * uintBitsToFloat(settings[SET_INV_TEMP]));
}

// A random number u; the draw takes unit floor(total * u / 2^32) of the total weight.
uint draw_share() {
    return philox(step[STEP_DRAWS], uvec2(step[STEP_SEED_LO], step[STEP_SEED_HI]));
}

// Whether an item with mass `sum` before it is in the nucleus of `total` mass.
bool in_nucleus(uvec2 sum, uvec2 total) {
    uint share = settings[SET_TOP_P];
    return share == ~0u || sum == uvec2(0u) || less64(sum, share64(total, share));
}

// Top-p and the draw among the listed items, of which the best k count. One item per invocation.
void draw_from_list(uint k) {
    uint n = listed, key = 0u, id = 0u, rank = 0u, weight = 0u, u = draw_share();
    uvec2 sum = uvec2(0u);
    if (lane < n) {
        key = list_key[lane];
        id = list_id[lane];
        for (uint j = 0u; j < n; j++) {
            if (!before(list_key[j], list_id[j], key, id)) continue;
            sum = add64(sum, uvec2(bin_lo[j], 0u));
            rank++;
        }
        if (rank == min(k, n) - 1u) mass = add64(sum, uvec2(bin_lo[lane], 0u));
    }
    barrier();
    if (lane < n) {
        if (rank < k && in_nucleus(sum, mass)) weight = draw_weight(key, id);
        bin_n[lane] = weight;
    }
    barrier();
    if (weight == 0u) return;
    uvec2 start = uvec2(0u), total = uvec2(0u);
    for (uint j = 0u; j < n; j++) {
        total = add64(total, uvec2(bin_n[j], 0u));
        if (draw_order(list_id[j]) < draw_order(id)) start = add64(start, uvec2(bin_n[j], 0u));
    }
    uvec2 unit = share64(total, u);
    if (!less64(unit, start) && less64(unit, add64(start, uvec2(weight, 0u)))) accept(id);
}

// Lists the kept ids of the selected groups; returns how many there are.
uint list_groups(uint items) {
    if (lane == 0u) listed = 0u;
    barrier();
    for (uint i = lane; i < items; i += THREADS) {
        uvec2 it = item(FROM_GROUPS, i);
        if (kept(it.x, it.y)) append(it.x, it.y, item_weight(BY_MASS, it.x));
    }
    barrier();
    uint n = listed;
    barrier();
    return n;
}

// Notes the kept groups; returns the number of their ids.
uint note_groups(uint groups) {
    if (lane == 0u) listed = 0u;
    barrier();
    for (uint i = lane; i < groups; i += THREADS) {
        uvec2 it = item(FROM_BEST, i);
        if (kept(it.x, it.y)) selected[atomicAdd(listed, 1u)] = i;
    }
    barrier();
    uint items = listed * p.group;
    barrier();
    return items;
}

// The draw among all kept ids.
void draw_from_all() {
    for (uint bin = lane; bin < BINS; bin += THREADS) { // ids that agree modulo BINS
        uvec2 sum = uvec2(0u);
        for (uint id = bin; id < p.n_vocab; id += BINS)
            sum = add64(sum, uvec2(draw_weight(keys[id], id), 0u));
        bin_lo[bin] = sum.x;
        bin_hi[bin] = sum.y;
    }
    barrier();
    find(AT_DRAW, draw_share());
    uint residue = found;
    barrier();
    for (uint i = lane; i < BINS; i += THREADS) {
        uint id = residue + i * BINS;
        bin_lo[i] = id < p.n_vocab ? draw_weight(keys[id], id) : 0u;
        bin_hi[i] = 0u;
    }
    barrier();
    find(AT_TARGET, 0u);
    if (lane == 0u) accept(residue + found * BINS);
}

// Two selections at most. 0 < k <= TOP: the k best groups, which hold the k best ids, then, if
// there are too many to list, the k best of their ids. Else: the k best ids, then the nucleus.
void draw(uint k, uint groups) {
    bool few = k != 0u && k <= TOP && k < p.n_vocab;
    uint share = settings[SET_TOP_P], items = few ? groups : p.n_vocab;
    for (uint pass = 0u; pass < 2u; pass++) {
        bool needed;
        if (few) needed = pass == 0u ? groups > k : list_groups(items) > LIST;
        else needed = pass == 0u ? k != 0u && k < p.n_vocab : share != ~0u;
        uint source = !few ? FROM_ALL : pass == 0u ? FROM_BEST : FROM_GROUPS;
        uint weigh = !few && pass == 1u ? BY_MASS : BY_COUNT;
        if (needed) select(source, items, weigh, k - 1u, share); // one call: it is inlined
        if (few && pass == 0u) items = note_groups(groups);
        else if (few && needed) list_groups(items);
    }
    if (few) draw_from_list(k);
    else draw_from_all();
}

void main() {
    if (step[STEP_STOP] != 0u) return;
    lane = gl_LocalInvocationID.x;
    worst_key = 1u;
    worst_id = ~0u;
    uint groups = (p.n_vocab + p.group - 1u) / p.group;
    reduce_best(groups);
    if (top_key == 0u) {
        if (lane == 0u) {
            step[STEP_STOP] = NOT_FINITE;
            publish();
        }
    } else if (settings[SET_GREEDY] != 0u) {
        if (lane == 0u) accept(found_id);
    } else {
        draw(settings[SET_TOP_K], groups);
    }
}
