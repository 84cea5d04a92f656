// Words of the step buffer: what changes from token to token. engine/step.py has the same table.
const uint STEP_N = 0u;       // tokens in this batch
const uint STEP_POS = 1u;     // position of the first of them = entries already in the KV cache
const uint STEP_STOP = 2u;    // 0 while running; else the reason (engine/step.py StopReason)
const uint STEP_LIMIT = 3u;   // position at which generation ends
const uint STEP_COUNT = 4u;   // tokens generated so far
const uint STEP_SEED_LO = 5u; // 64-bit seed of the random generator
const uint STEP_SEED_HI = 6u;
const uint STEP_DRAWS = 7u;   // random numbers drawn so far
const uint STEP_BAD = 8u;     // non-finite logits of all steps since the generation began
const uint STEP_WORDS = 16u;
