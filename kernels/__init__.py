"""One module per kernel: declaration, NumPy reference, cases. The twin of `shaders/`."""
