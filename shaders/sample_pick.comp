// Sampling, second half, one workgroup: top-k, top-p, min-p, temperature, draw, bookkeeping.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
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

// Software devices compile every copy of a loop body at length: seconds for this shader.
#define DONT_UNROLL [[dont_unroll]]
#include "sample_select.glsl"

const uint RING = 64u;
const uint END_TOKEN = 1u, LIMIT = 2u, NOT_FINITE = 3u; // engine/step.py StopReason
const uint OPTIONS = 80u;

shared uint now[STEP_WORDS]; // copies: every read from device memory takes half a microsecond
shared uint option[OPTIONS];

void publish() {
    for (uint i = 0u; i < STEP_WORDS; i++) {
        step[i] = now[i];
        result[i] = now[i];
    }
}

void remember(uint pos, uint id) {
    uint window = option[SET_WINDOW];
    if (window == 0u || pos >= p.n_ctx) return;
    history[pos] = id + 1u;
    counts[id]++;
    if (pos >= window && history[pos - window] != 0u) counts[history[pos - window] - 1u]--;
}

// Run by one invocation: `id` is the token at the position after the batch just computed.
void accept(uint id) {
    uint pos = now[STEP_POS] + now[STEP_N];
    result[STEP_WORDS + now[STEP_COUNT] % RING] = id;
    tokens[0] = id;
    remember(pos, id);
    now[STEP_N] = 1u;
    now[STEP_POS] = pos;
    now[STEP_COUNT]++;
    now[STEP_DRAWS]++;
    if (pos >= now[STEP_LIMIT]) now[STEP_STOP] = LIMIT;
    for (uint i = 0u; i < option[SET_N_END]; i++)
        if (option[SET_END + i] == id) now[STEP_STOP] = END_TOKEN;
    publish();
}

// Merges entries lane, lane + stride, ... below `count` of the reduction into entry `lane`.
void merge(uint stride, uint count) {
    if (lane < stride) {
        uint key = 0u, id = ~0u, low = ~0u;
        for (uint i = lane; i < count; i += stride) {
            uint other = bin_n[i], other_id = bin_lo[i];
            if (before(other, other_id, key, id)) { key = other; id = other_id; }
            low = min(low, bin_hi[i]);
        }
        bin_n[lane] = key;
        bin_lo[lane] = id;
        bin_hi[lane] = low;
    }
    barrier();
}

// The largest key, its lowest id (in found_id), and how far down group maxima reach.
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
    span = key_value(top_key) - key_value(bin_hi[0]);
    barrier();
}

uint draw_weight(uint key, uint id) {
    float x = key_value(key) - key_value(top_key);
    if (!kept(key, id) || x < uintBitsToFloat(option[SET_MIN_LOG])) return 0u;
    return fixed_exp(x * uintBitsToFloat(option[SET_INV_TEMP]));
}

// A random number u; the draw takes unit floor(total * u / 2^32) of the total weight.
uint draw_share() {
    return philox(now[STEP_DRAWS], uvec2(now[STEP_SEED_LO], now[STEP_SEED_HI]));
}

// Whether an item with mass `sum` before it is in the nucleus of `total` mass.
bool in_nucleus(uvec2 sum, uvec2 total) {
    uint share = option[SET_TOP_P];
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
    if (holds(start, uvec2(weight, 0u), unit)) accept(id);
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

// The draw among all kept ids: the class of ids that agree modulo BINS, then one id of it.
void draw_from_all() {
    uint u = draw_share(), residue = 0u;
    DONT_UNROLL for (uint round = 0u; round < 2u; round++) {
        for (uint bin = lane; bin < BINS; bin += THREADS) {
            uint id = round == 0u ? bin : residue + bin * BINS;
            uint end = round == 0u ? p.n_vocab : min(p.n_vocab, id + 1u);
            uvec2 sum = uvec2(0u);
            for (; id < end; id += BINS)
                sum = add64(sum, uvec2(draw_weight(keys[id], id), 0u));
            bin_lo[bin] = sum.x;
            bin_hi[bin] = sum.y;
        }
        barrier();
        find(round == 0u ? AT_DRAW : AT_TARGET, u);
        if (round == 0u) residue = found;
        else if (lane == 0u) accept(residue + found * BINS);
        barrier();
    }
}

// Two selections at most. 0 < k <= TOP: the k best groups, which hold the k best ids, then, if
// there are too many to list, the k best of their ids. Else: the k best ids, then the nucleus.
void draw(uint k, uint groups) {
    bool few = k != 0u && k <= TOP && k < p.n_vocab;
    uint share = option[SET_TOP_P], items = few ? groups : p.n_vocab;
    DONT_UNROLL for (uint pass = 0u; pass < 2u; pass++) {
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
    lane = gl_LocalInvocationID.x;
    uint word = lane < STEP_WORDS ? step[lane] : 0u;
    uint set = lane < OPTIONS ? settings[lane] : 0u;
    if (step[STEP_STOP] != 0u) return;
    if (lane < STEP_WORDS) now[lane] = word;
    if (lane < OPTIONS) option[lane] = set;
    worst_key = 1u;
    worst_id = ~0u;
    group_bits = findLSB(p.group);
    uint groups = (p.n_vocab + p.group - 1u) >> group_bits;
    reduce_best(groups);
    if (top_key == 0u) {
        if (lane == 0u) {
            now[STEP_STOP] = NOT_FINITE;
            publish();
        }
    } else if (option[SET_GREEDY] != 0u) {
        if (lane == 0u) accept(found_id);
    } else {
        draw(option[SET_TOP_K], groups);
    }
}
