"""The table of families: how a file of one is read, checked and run."""

from __future__ import annotations

from .arch import (
    deepseek2,
    gemma,
    gemma2,
    gemma3,
    gemma4,
    glm4,
    glm4moe,
    glm_dsa,
    gpt_oss,
    granite,
    llama,
    minimax_m2,
    olmo2,
    olmoe,
    phi3,
    qwen2,
    qwen3,
    qwen3moe,
)
from .arch.family import Family

FAMILIES: dict[str, Family] = {
    "llama": llama.FAMILY,
    "qwen2": qwen2.FAMILY,
    "qwen3": qwen3.FAMILY,
    "gemma": gemma.FAMILY,
    "gemma2": gemma2.FAMILY,
    "gemma3": gemma3.FAMILY,
    "gemma4": gemma4.FAMILY,
    "phi3": phi3.FAMILY,
    "granite": granite.FAMILY,
    "olmo2": olmo2.FAMILY,
    "glm4": glm4.FAMILY,
    "qwen3moe": qwen3moe.FAMILY,
    "olmoe": olmoe.FAMILY,
    "glm4moe": glm4moe.FAMILY,
    "minimax-m2": minimax_m2.FAMILY,
    "gpt-oss": gpt_oss.FAMILY,
    "deepseek2": deepseek2.FAMILY,
    "deepseek32": glm_dsa.DEEPSEEK,
    "glm-dsa": glm_dsa.GLM,
}
"""By the name in general.architecture."""
