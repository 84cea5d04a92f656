// A draw from few ids, with little to wait for: a threshold above which lie at least the k best
// groups, the ids above it, all compared with all. The list may hold more than the k best: ranks say
// which these are. So the threshold needs no precision, and the result does not depend on it.
//
// Arrays of bins are all zeros when `gather` or `draw_from_list` begins; their parts serve as:
const uint FINE = 256u;     // bin_n[0 ...]: groups by distance from the largest logit
const uint COARSE = 16u;    // bin_n[SUMS ...]: sums of as many fine bins
const uint SUMS = FINE + COARSE; // the bins between stay empty: those of part COARSE
const uint RANK = 512u;     // bin_n[RANK ...]: items before each one of the list
const uint WEIGHT = LIST;   // bin_lo[WEIGHT ...]: weights in the draw, behind those of the list
const uint MASS = 0u, START = 2u * LIST, TOTAL = 4u * LIST; // bin_hi: sums for each item, split

uint most_bin; // the last fine bin whose groups and ids are taken

uint fine(uint key) {
    float distance = (key_value(top_key) - key_value(key)) * bin_scale;
    return uint(min(distance, float(FINE - 1u)));
}

// Weights are at most 2^30, so sums of LIST of them by 15 low and 15 high bits need no carry.
uvec2 split(uint weight) { return uvec2(weight & 0x7fffu, weight >> 15); }

void add_split(uint place, uint i, uvec2 sum) {
    atomicAdd(bin_hi[place + i], sum.x);
    atomicAdd(bin_hi[place + LIST + i], sum.y);
}

uvec2 joined(uint place, uint i) {
    uint high = bin_hi[place + LIST + i];
    return add64(uvec2(bin_hi[place + i], 0u), uvec2(high << 15, high >> 17));
}

void count_group(uvec2 it) {
    if (it.x != 0u) atomicAdd(bin_n[fine(it.x)], 1u);
}

void note_group(uint i, uvec2 it) {
    if (it.x == 0u || fine(it.x) > most_bin) return;
    uint at = atomicAdd(noted, 1u);
    if (at < TOP) selected[at] = i;
}

// The fine bin up to which there are k groups, from sums of bins: first among the sums.
void find_threshold(uint k) {
    if (lane < COARSE) {
        uint sum = 0u;
        FLAT for (uint i = 0u; i < COARSE; i++) // each reads another memory bank
            sum += bin_n[lane * COARSE + (i + lane) % COARSE];
        bin_n[SUMS + lane] = sum;
    }
    barrier();
    uint sum = 0u, part = 0u, start = 0u;
    FLAT for (uint i = 0u; i < COARSE; i++) {
        sum += bin_n[SUMS + i];
        if (sum < k) { part = i + 1u; start = sum; }
    }
    most_bin = part * COARSE;
    FLAT for (uint i = 0u; i < COARSE; i++) {
        start += bin_n[part * COARSE + i];
        if (start < k) most_bin++;
    }
}

// Lists what may be among the k best ids. False where that is too much, or bins make no sense.
bool gather(uint k, uint groups, uvec2 held[HELD]) {
    bin_scale = span > 1e-20 && span < 1e20 ? float(FINE) / span : 0.0;
    if (bin_scale == 0.0) return false;
    FLAT for (uint r = 0u; r < HELD; r++) count_group(held[r]);
    for (uint i = lane + HELD * THREADS; i < groups; i += THREADS) count_group(best[i]);
    barrier();
    find_threshold(k);
    FLAT for (uint r = 0u; r < HELD; r++) note_group(lane + r * THREADS, held[r]);
    for (uint i = lane + HELD * THREADS; i < groups; i += THREADS) note_group(i, best[i]);
    barrier();
    if (noted > TOP) return false;
    uint items = noted << group_bits;
    DONT_UNROLL for (uint start = lane; start < items; start += AHEAD * THREADS) {
        uvec2 it[AHEAD]; // all on their way together
        FLAT for (uint r = 0u; r < AHEAD; r++) {
            uint i = start + r * THREADS;
            it[r] = i < items ? item(FROM_GROUPS, i) : uvec2(0u);
        }
        FLAT for (uint r = 0u; r < AHEAD; r++)
            if (it[r].x != 0u && fine(it[r].x) <= most_bin)
                append(it[r].x, it[r].y, item_weight(BY_MASS, it[r].x));
    }
    barrier();
    return listed <= LIST;
}

// Whether an item with mass `sum` before it is in the nucleus of `total` mass.
bool in_nucleus(uvec2 sum, uvec2 total) {
    uint share = option[SET_TOP_P];
    return share == ~0u || sum == uvec2(0u) || less64(sum, share64(total, share));
}

// Top-p and the draw among the listed items, of which the best k count, into found_id. Several
// invocations compare one item, each with a part of the others.
void draw_from_list(uint k) {
    uint n = listed, i = lane % LIST, part = lane / LIST, parts = THREADS / LIST;
    uint key = list_key[i], id = list_id[i], u = draw_share();
    uint rank = 0u, weight = 0u;
    uvec2 sum = uvec2(0u), total = uvec2(0u);
    if (i < n) {
        DONT_UNROLL for (uint j = part; j < n; j += parts) {
            if (!before(list_key[j], list_id[j], key, id)) continue;
            rank++;
            sum += split(bin_lo[j]);
        }
        atomicAdd(bin_n[RANK + i], rank);
        add_split(MASS, i, sum);
    }
    barrier();
    sum = joined(MASS, i);
    rank = bin_n[RANK + i];
    if (part == 0u && i < n && rank == min(k, n) - 1u) mass = add64(sum, uvec2(bin_lo[i], 0u));
    barrier();
    if (i < n && rank < k && in_nucleus(sum, mass)) weight = draw_weight(key, id);
    if (part == 0u) bin_lo[WEIGHT + i] = weight;
    barrier();
    if (weight != 0u) {
        sum = uvec2(0u);
        DONT_UNROLL for (uint j = part; j < n; j += parts) {
            uvec2 other = split(bin_lo[WEIGHT + j]);
            total += other;
            if (draw_order(list_id[j]) < draw_order(id)) sum += other;
        }
        add_split(START, i, sum);
        add_split(TOTAL, i, total);
    }
    barrier();
    if (part != 0u || weight == 0u) return;
    uvec2 unit = share64(joined(TOTAL, i), u);
    if (holds(joined(START, i), uvec2(weight, 0u), unit)) found_id = id;
}
