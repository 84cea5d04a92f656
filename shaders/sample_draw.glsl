// What sample_pick and sample_pick_embed share: from the keys of sample_scan to the token drawn, and
// what it changes. The includer declares the buffers, p and THREADS.
#define DONT_UNROLL [[dont_unroll]] // software devices compile every copy of a body at length
#include "random.glsl"
#include "sample_select.glsl"

const uint RING = 64u;
const uint END_TOKEN = 1u, LIMIT = 2u, NOT_FINITE = 3u; // engine/step.py StopReason
const uint OPTIONS = 80u;
const uint HELD = 4u;  // groups whose maxima an invocation reads at once, at first
const uint AHEAD = 4u; // as many ids

shared uint now[STEP_WORDS]; // copies: every read from device memory takes half a microsecond
shared uint option[OPTIONS];
shared uint noted; // groups in `selected`

// A random number u; the draw takes unit floor(total * u / 2^32) of the total weight.
uint draw_share() {
    return philox(now[STEP_DRAWS], uvec2(now[STEP_SEED_LO], now[STEP_SEED_HI]));
}

uint draw_weight(uint key, uint id) {
    float x = key_value(key) - key_value(top_key);
    if (!kept(key, id) || x < uintBitsToFloat(option[SET_MIN_LOG])) return 0u;
    return fixed_exp(x * uintBitsToFloat(option[SET_INV_TEMP]));
}

#include "sample_list.glsl"

// Lists the kept ids of the selected groups; returns how many there are.
uint list_groups(uint items) {
    clear_bins();
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
        else if (lane == 0u) found_id = residue + found * BINS;
        barrier();
    }
}

// Two selections at most. `few`: the k best groups, which hold the k best ids, then, if there are
// too many to list, the k best of their ids. Else: the k best ids, then the nucleus.
void select_exactly(uint k, uint groups, bool few) {
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
}

// found_id = the id drawn.
void draw(uint k, uint groups, uvec2 held[HELD]) {
    bool few = k != 0u && k <= TOP && k < p.n_vocab;
    bool listed_all = few && gather(k, groups, held);
    if (!listed_all) {
        barrier(); // all have read the counts
        select_exactly(k, groups, few);
    }
    if (few) draw_from_list(k);
    else draw_from_all();
}

// found_id = the lowest id with the largest key.
void take_best(uint groups, uvec2 held[HELD]) {
    FLAT for (uint r = 0u; r < HELD; r++)
        if (held[r].x == top_key) atomicMin(found_id, held[r].y);
    for (uint i = lane + HELD * THREADS; i < groups; i += THREADS)
        if (best[i].x == top_key) atomicMin(found_id, best[i].y);
}

void remember(uint pos, uint id) {
    uint window = option[SET_WINDOW];
    if (window == 0u || pos >= p.n_ctx) return;
    history[pos] = id + 1u;
    counts[id]++;
    if (pos >= window && history[pos - window] != 0u) counts[history[pos - window] - 1u]--;
}

// Step word `word` once `id` is the token at `pos`.
uint advanced(uint word, uint pos, uint id) {
    if (word == STEP_N) return 1u;
    if (word == STEP_POS) return pos;
    if (word == STEP_COUNT || word == STEP_DRAWS) return now[word] + 1u;
    if (word != STEP_STOP) return now[word];
    for (uint i = 0u; i < option[SET_N_END]; i++)
        if (option[SET_END + i] == id) return END_TOKEN;
    return pos >= now[STEP_LIMIT] ? LIMIT : 0u;
}

void publish(uint value) {
    step[lane] = value;
    result[lane] = value;
}

// `id` is the token at the position after the batch just computed. Done by the first invocations.
void accept(uint id) {
    uint pos = now[STEP_POS] + now[STEP_N];
    if (lane == 0u) {
        tokens[0] = id;
        result[STEP_WORDS + now[STEP_COUNT] % RING] = id;
        remember(pos, id);
    }
    if (lane < STEP_WORDS) publish(advanced(lane, pos, id));
}

uint word, set; // of the step buffer and the settings: the one that an invocation copies

// Step words and settings are read before anything is waited for.
void read_words() {
    lane = gl_LocalInvocationID.x;
    word = lane < STEP_WORDS ? step[lane] : 0u;
    set = lane < OPTIONS ? settings[lane] : 0u;
}

// Groups that an invocation reads at once, and the ends of all.
struct Maxima {
    uvec2 held[HELD], ends;
    uint groups;
};

Maxima read_maxima() {
    Maxima m;
    group_bits = findLSB(p.group);
    m.groups = (p.n_vocab + p.group - 1u) >> group_bits;
    m.ends = best[m.groups];
    FLAT for (uint r = 0u; r < HELD; r++) {
        uint i = lane + r * THREADS;
        m.held[r] = i < m.groups ? best[i] : uvec2(0u);
    }
    return m;
}

// Draws found_id and takes note of it. False where there is nothing to draw.
bool pick(Maxima m) {
    if (lane < STEP_WORDS) now[lane] = word;
    if (lane < OPTIONS) option[lane] = set;
    if (lane == 0u) {
        noted = 0u;
        found_id = ~0u;
    }
    clear_bins();
    if (lane == 0u) best[m.groups] = uvec2(0u); // all have read it
    worst_key = 1u;
    worst_id = ~0u;
    top_key = m.ends.x;
    span = key_value(top_key) - key_value(~m.ends.y);
    if (top_key == 0u) {
        if (lane < STEP_WORDS) publish(lane == STEP_STOP ? NOT_FINITE : now[lane]);
        return false;
    }
    if (option[SET_GREEDY] != 0u) take_best(m.groups, m.held);
    else draw(option[SET_TOP_K], m.groups, m.held);
    barrier();
    accept(found_id);
    return true;
}
