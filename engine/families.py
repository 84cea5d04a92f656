"""The table of families: how a file of one is read, checked and run."""

from __future__ import annotations

from .arch import (
    deepseek2,
    gemma3,
    glm4moe,
    glm_dsa,
    gpt_oss,
    llama,
    minimax_m2,
    olmoe,
    qwen3,
    qwen3moe,
)
from .arch.family import Family

FAMILIES: dict[str, Family] = {
    "llama": llama.FAMILY,
    "qwen3": qwen3.FAMILY,
    "gemma3": gemma3.FAMILY,
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
