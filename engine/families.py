"""The table of families: how a file of one is read, checked and run."""

from __future__ import annotations

from .arch import llama
from .arch.family import Family

FAMILIES: dict[str, Family] = {"llama": llama.FAMILY}
"""By the name in general.architecture."""
