// Positions of a split: few positions are not worth many workgroups.
const uint MIN_SPLIT = 16u;

uint split_length(uint len) { return max((len + p.splits - 1u) / p.splits, MIN_SPLIT); }
