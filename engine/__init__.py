"""Model files, tokens, plans and the two executors. Knows token ids; prints nothing."""
