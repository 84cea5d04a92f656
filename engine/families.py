"""The table of families: how a file of one is read, checked and run."""

from __future__ import annotations

from .arch import deepseek2, gemma3, llama, qwen3
from .arch.family import Family

FAMILIES: dict[str, Family] = {
    "llama": llama.FAMILY,
    "qwen3": qwen3.FAMILY,
    "gemma3": gemma3.FAMILY,
    "deepseek2": deepseek2.FAMILY,
}
"""By the name in general.architecture."""
