// Selection without sorting, in one workgroup: the item that holds a given unit when all items
// are laid end to end, best first, each as wide as its weight (1, or its probability).
//
// Weights go into histograms of integers: sums of integers do not depend on their order, so the
// result is the same on every device. Level 0 bins linearly by distance from the maximum, which
// spreads any distribution; levels 1-4 refine by the bytes of the key, 5-8 by those of the id.
// As soon as the chosen bin holds at most LIST items these are compared one with another.
// The includer declares best, keys, p, THREADS and GROUPS.

const uint BINS = 1024u;
const uint LIST = 128u; // <= THREADS
const uint TOP = 128u;  // largest k that is answered from group maxima

const uint FROM_BEST = 0u, FROM_GROUPS = 1u, FROM_ALL = 2u;    // sources of items
const uint BY_COUNT = 0u, BY_MASS = 1u;                        // weights
const uint AT_TARGET = 0u, AT_NUCLEUS = 1u, AT_DRAW = 2u;      // which unit `find` looks for

shared uint bin_n[BINS];
shared uint bin_lo[BINS];
shared uint bin_hi[BINS];
shared uint part_lo[32];
shared uint part_hi[32];
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
    if (source == FROM_BEST) return uvec2(best[2u * i], best[2u * i + 1u]);
    uint id = source == FROM_ALL ? i : selected[i / p.group] * p.group + i % p.group;
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

// Sets `found` to the bin that holds unit `target`, and `target` relative to it.
void find(uint rule, uint share) {
    for (uint part = lane; part < 32u; part += THREADS) {
        uvec2 sum = uvec2(0u);
        for (uint i = 0u; i < 32u; i++) { // rotated: 32 invocations read 32 memory banks
            uint bin = part * 32u + (i + part & 31u);
            sum = add64(sum, uvec2(bin_lo[bin], bin_hi[bin]));
        }
        part_lo[part] = sum.x;
        part_hi[part] = sum.y;
    }
    barrier();
    if (lane == 0u) {
        uvec2 rest = target;
        if (rule != AT_TARGET) {
            uvec2 total = uvec2(0u);
            for (uint i = 0u; i < 32u; i++) total = add64(total, uvec2(part_lo[i], part_hi[i]));
            rest = share64(total, share);
            // the smallest set with mass >= m ends with the item that holds unit m - 1
            if (rule == AT_NUCLEUS && rest != uvec2(0u)) rest = sub64(rest, uvec2(1u, 0u));
        }
        uint part = 0u;
        for (; part < 32u; part++) {
            uvec2 sum = uvec2(part_lo[part], part_hi[part]);
            if (less64(rest, sum)) break;
            rest = sub64(rest, sum);
        }
        uint bin = part * 32u;
        for (; bin < BINS; bin++) {
            uvec2 sum = uvec2(bin_lo[bin], bin_hi[bin]);
            if (less64(rest, sum)) break;
            rest = sub64(rest, sum);
        }
        found = bin;
        target = rest;
    }
    barrier();
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
        if (!less64(target, sum) && less64(target, add64(sum, uvec2(bin_lo[lane], 0u)))) {
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
