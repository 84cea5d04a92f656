// Positions that the token attends to, at most p.most, and those of a split: few are not worth
// many workgroups. spec: 6 MIN_SPLIT.
layout(constant_id = 6) const uint MIN_SPLIT = 16u;

uint length_seen() { return min(step[STEP_POS] + 1u, p.most); }

uint split_length(uint len) { return max((len + p.splits - 1u) / p.splits, MIN_SPLIT); }
