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

#include "sample_scan.glsl"

void main() {
    Scanned ids = read_logits(); // on its way before the stop flag is waited for
    if (step[STEP_STOP] == 0u) scan_ids(ids);
}
