// Selection without sorting, in one workgroup: the item that holds a given unit when all items
// are laid end to end, best first, each as wide as its weight (1, or its probability).
//
// Weights go into histograms of integers: sums of integers do not depend on their order, so the
// result is the same on every device. Level 0 bins linearly by distance from the maximum, which
// spreads any distribution; levels 1-4 refine by the bytes of the key, 5-8 by those of the id.
// As soon as the chosen bin holds at most LIST items these are compared one with another.
// The includer declares best, keys, p, THREADS and DONT_UNROLL.

const uint BINS = 1024u;
const uint PARTS = 32u; // of as many bins each; their sums follow the bins in bin_lo and bin_hi
const uint LIST = 128u; // <= THREADS
const uint TOP = 128u;  // largest k that is answered from group maxima

const uint FROM_BEST = 0u, FROM_GROUPS = 1u, FROM_ALL = 2u;    // sources of items
const uint BY_COUNT = 0u, BY_MASS = 1u;                        // weights
const uint AT_TARGET = 0u, AT_NUCLEUS = 1u, AT_DRAW = 2u;      // which unit `find` looks for

shared uint bin_n[BINS];
shared uint bin_lo[BINS + PARTS];
shared uint bin_hi[BINS + PARTS];
shared uint list_key[LIST];
shared uint list_id[LIST];
shared uint selected[TOP]; // groups that hold the k best ids
shared uint listed;
shared uint found;         // what `find` found: a bin, or BINS
shared uvec2 target;       // the unit looked for; after `find`, counted from the start of its bin
shared uvec2 mass;         // of all items that top-k leaves
shared uint found_key;
shared uint found_id;

uint lane;        // gl_LocalInvocationID.x
uint worst_key;   // items after (worst_key, worst_id) are out
uint worst_id;
uint top_key;
float span;       // top logit less the worst group maximum
uint group_bits;  // log2(p.group)
float bin_scale;  // bins per unit of logit, 0 = do not bin linearly
uint linear_bin;  // prefix that an item of the current bin has
uvec2 key_prefix; // bits, mask
uvec2 id_prefix;

bool kept(uint key, uint id) {
    return key != 0u && (key > worst_key || (key == worst_key && id <= worst_id));
}

bool before(uint key, uint id, uint key2, uint id2) {
    return key > key2 || (key == key2 && id < id2);
}

// Item i of a source as (key, id); key 0 where there is none.
uvec2 item(uint source, uint i) {
    if (source == FROM_BEST) return best[i];
    uint id = i;
    if (source == FROM_GROUPS)
        id = selected[i >> group_bits] << group_bits | i & p.group - 1u;
    return uvec2(id < p.n_vocab ? keys[id] : 0u, id);
}

uint item_weight(uint weigh, uint key) {
    return weigh == BY_COUNT ? 1u : fixed_exp(key_value(key) - key_value(top_key));
}

uint linear(uint key) {
    float distance = (key_value(top_key) - key_value(key)) * bin_scale;
    return min(uint(min(distance, float(BINS - 1u))), BINS - 1u);
}

uint bin_of(uint level, uint key, uint id) {
    if (level == 0u) return linear(key);
    if (level <= 4u) return 255u - (key >> (32u - 8u * level) & 255u);
    return id >> (64u - 8u * level) & 255u;
}

bool in_prefix(uint key, uint id) {
    return (key & key_prefix.y) == key_prefix.x && (id & id_prefix.y) == id_prefix.x
        && (linear_bin == BINS || linear(key) == linear_bin);
}

void narrow(uint level, uint bin) {
    if (level == 0u) linear_bin = bin;
    else if (level <= 4u) key_prefix |= uvec2(255u - bin, 255u) << (32u - 8u * level);
    else id_prefix |= uvec2(bin, 255u) << (64u - 8u * level);
}

void add_to_bin(uint bin, uint weight) {
    uint old = atomicAdd(bin_lo[bin], weight);
    if (old + weight < old) atomicAdd(bin_hi[bin], 1u);
}

void clear_bins() {
    for (uint i = lane; i < BINS; i += THREADS) {
        bin_n[i] = 0u;
        bin_lo[i] = 0u;
        bin_hi[i] = 0u;
    }
    if (lane == 0u) listed = 0u;
    barrier();
}

// Units before entry `i` of the PARTS entries from `first` on, and (in total) of all of them.
uvec2 units_before(uint i, uint first, out uvec2 total) {
    uvec2 sum = uvec2(0u);
    total = uvec2(0u);
    DONT_UNROLL for (uint j = 0u; j < PARTS; j++) {
        if (j == i) sum = total;
        total = add64(total, uvec2(bin_lo[first + j], bin_hi[first + j]));
    }
    return sum;
}

// Whether units [start, start + width) hold `unit`.
bool holds(uvec2 start, uvec2 width, uvec2 unit) {
    return !less64(unit, start) && less64(unit, add64(start, width));
}

// The unit that a rule asks for: `target` itself, or a share of the total.
uvec2 unit_of(uint rule, uint share, uvec2 total) {
    if (rule == AT_TARGET) return target;
    uvec2 unit = share64(total, share);
    // the smallest set with mass >= m ends with the item that holds unit m - 1
    return rule == AT_NUCLEUS && unit != uvec2(0u) ? sub64(unit, uvec2(1u, 0u)) : unit;
}

// Sets `found` to the bin that holds the unit asked for, and `target` to that unit relative to
// the bin. `found` is BINS where there are not that many units.
void find(uint rule, uint share) {
    if (lane < PARTS) {
        uvec2 sum = uvec2(0u);
        DONT_UNROLL for (uint i = 0u; i < PARTS; i++) {
            uint bin = lane * PARTS + (i + lane) % PARTS; // each reads another memory bank
            sum = add64(sum, uvec2(bin_lo[bin], bin_hi[bin]));
        }
        bin_lo[BINS + lane] = sum.x;
        bin_hi[BINS + lane] = sum.y;
    }
    if (lane == 0u) found = BINS;
    barrier();
    // First among the parts, then among the bins of one.
    DONT_UNROLL for (uint first = BINS; ; first = found * PARTS) {
        bool mine = false;
        uvec2 unit, start, total;
        if (lane < PARTS) {
            start = units_before(lane, first, total);
            unit = first == BINS ? unit_of(rule, share, total) : target;
            mine = holds(start, uvec2(bin_lo[first + lane], bin_hi[first + lane]), unit);
        }
        barrier(); // all have read the target
        if (mine) {
            found = first == BINS ? lane : first + lane;
            target = sub64(unit, start);
        }
        barrier();
        if (first != BINS || found == BINS) break;
    }
}

void append(uint key, uint id, uint weight) {
    uint i = atomicAdd(listed, 1u);
    if (i >= LIST) return;
    list_key[i] = key;
    list_id[i] = id;
    bin_lo[i] = weight;
}

// Among the listed items: the one that holds unit `target` becomes the worst that is kept.
void finish_select() {
    if (lane < listed) {
        uint key = list_key[lane], id = list_id[lane];
        uvec2 sum = uvec2(0u);
        for (uint j = 0u; j < listed; j++)
            if (before(list_key[j], list_id[j], key, id)) sum = add64(sum, uvec2(bin_lo[j], 0u));
        if (holds(sum, uvec2(bin_lo[lane], 0u), target)) {
            found_key = key;
            found_id = id;
        }
    }
    barrier();
    worst_key = found_key;
    worst_id = found_id;
}

// Drops all kept items after the one that holds unit `first` (BY_COUNT) or the last of the
// nucleus of `share` (BY_MASS). Keeps all if there are not that many.
void select(uint source, uint items, uint weigh, uint first, uint share) {
    linear_bin = BINS;
    key_prefix = uvec2(0u);
    id_prefix = uvec2(0u);
    if (lane == 0u) target = uvec2(first, 0u);
    // group maxima reach down to `span`; single ids lie deeper, but below 22 they weigh nothing
    float range = source == FROM_ALL ? min(3.0 * span, 22.0) : span;
    bin_scale = range > 1e-20 && range < 1e20 ? float(BINS) / range : 0.0;
    uint rule = weigh == BY_MASS ? AT_NUCLEUS : AT_TARGET;
    for (uint level = bin_scale > 0.0 ? 0u : 1u; level <= 8u; level++) {
        clear_bins();
        for (uint i = lane; i < items; i += THREADS) {
            uvec2 it = item(source, i);
            if (!kept(it.x, it.y) || !in_prefix(it.x, it.y)) continue;
            uint weight = item_weight(weigh, it.x);
            if (weight == 0u) continue;
            uint bin = bin_of(level, it.x, it.y);
            atomicAdd(bin_n[bin], 1u);
            add_to_bin(bin, weight);
        }
        barrier();
        find(rule, share);
        rule = AT_TARGET;
        if (found == BINS) return;
        uint inside = bin_n[found];
        narrow(level, found);
        barrier();
        if (inside <= LIST) break;
    }
    for (uint i = lane; i < items; i += THREADS) {
        uvec2 it = item(source, i);
        if (!kept(it.x, it.y) || !in_prefix(it.x, it.y)) continue;
        uint weight = item_weight(weigh, it.x);
        if (weight != 0u) append(it.x, it.y, weight);
    }
    barrier();
    finish_select();
}
