"""Qwen2, Qwen2.5: a llama whose pairs rotate by halves; queries, keys and values have biases."""

from __future__ import annotations

from ..container import Container
from ..keys import Keys
from ..spec_common import common_spec, refuse_experts
from ..spec_model import ModelSpec
from . import llama
from .family import Family


def spec(c: Container, k: Keys) -> ModelSpec:
    """Nothing but the common keys."""
    refuse_experts(c, k)
    return common_spec(c, k, "halves")


FAMILY = Family(spec, llama.FAMILY.shapes, llama.FAMILY.layers)
