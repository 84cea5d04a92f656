"""GLM-5 and DeepSeek V3.2: DeepSeek V3 with attention to positions that an indexer chooses."""

from __future__ import annotations

from dataclasses import replace

from ..container import Container
from ..keys import Keys
from ..shapes import Shapes, model_shapes, pre_norms
from ..spec_dsa import dsa_spec, indexer_shapes
from ..spec_mla import latent_shapes
from ..spec_model import ModelSpec
from . import deepseek2
from .expert_layers import ffn_shapes
from .family import Family


def glm_spec(c: Container, k: Keys) -> ModelSpec:
    """GLM: neighbouring pairs; layers may share a choice."""
    return _spec(c, k, shares=True, halves=False)


def deepseek_spec(c: Container, k: Keys) -> ModelSpec:
    """DeepSeek V3.2: the indexer's pairs are halves; every layer chooses."""
    return _spec(c, k, shares=False, halves=True)


def _spec(c: Container, k: Keys, *, shares: bool, halves: bool) -> ModelSpec:
    s = deepseek2.sigmoid_spec(c, k)
    assert s.mla is not None
    if not s.mla.q_rank:
        raise k.fail("attention.q_lora_rank", "must be there for sparse attention")
    dsa = dsa_spec(k, s.n_layer, s.mla.n_rot, shares=shares, halves=halves)
    return replace(s, dsa=dsa)


def shapes(s: ModelSpec) -> Shapes:
    """The tensors of the plan."""
    return model_shapes(s, pre_norms, latent_shapes, indexer_shapes, ffn_shapes)


GLM = Family(glm_spec, shapes, deepseek2.layers)
DEEPSEEK = Family(deepseek_spec, shapes, deepseek2.layers)
