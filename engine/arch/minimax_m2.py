"""MiniMax M2: queries and keys normalised over all heads, half of a head rotates, sigmoid gates
with a bias for the choice, weights normalised."""

from __future__ import annotations

from ...kernels.routing import Gating
from ..container import Container
from ..keys import Keys
from ..spec_common import common_spec, layer_specs
from ..spec_model import ModelSpec
from ..spec_moe import idle_expert_bytes, moe_spec
from . import olmoe
from .family import Family


def spec(c: Container, k: Keys) -> ModelSpec:
    """An expert is as wide as feed_forward_length says."""
    layers = layer_specs(k)
    moe = moe_spec(k, Gating.SIGMOID, normalise=True, n_ff=layers[0].n_ff)
    return common_spec(c, k, "halves", layers=layers, moe=moe).idle(idle_expert_bytes(c, moe))


FAMILY = Family(spec, olmoe.shapes, olmoe.layers)
