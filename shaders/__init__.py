"""GLSL compute shaders, one `.comp` per kernel, and the SPIR-V compiled from them."""
