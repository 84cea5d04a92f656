"""The expert keys of a model, read into a MoeSpec; names and defaults as in llama.cpp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..kernels.routing import Gating, Routing
from .container import Container
from .keys import Keys

if TYPE_CHECKING:
    from .shapes import Shapes
    from .spec_model import LayerSpec, ModelSpec

MAX_EXPERTS, MAX_USED = 4096, 64
GATINGS = {1: Gating.SOFTMAX, 2: Gating.SIGMOID, 3: Gating.CHOSEN}  # of expert_gating_func


@dataclass(frozen=True)
class MoeSpec:
    """Feed-forward networks of experts in the layers from `dense` on.

    Every expert has `n_ff` inner values. `shared` experts serve all tokens: their tensors hold
    `shared` times n_ff values, so that they count as experts behind the routed ones.
    """

    routing: Routing
    n_ff: int
    dense: int = 0

    @property
    def total(self) -> int:
        """Routed and shared experts."""
        return self.routing.experts + self.routing.shared

    def has_experts(self, layer: int) -> bool:
        """Whether a layer chooses experts."""
        return layer >= self.dense


def moe_spec(
    k: Keys, gating: Gating, *, normalise: bool = False, n_ff: int | None = None,
    shared: bool = False,
) -> MoeSpec:
    """The experts of a family. `gating` and `normalise` hold where the file says nothing; `n_ff`
    is used where expert_feed_forward_length is absent; `shared`: whether the family has them."""
    experts = k.integer("expert_count", 1, MAX_EXPERTS)
    used = k.integer("expert_used_count", 1, min(experts, MAX_USED))
    groups = max(k.integer("expert_group_count", 0, experts, 0), 1)
    if experts % groups:
        raise k.fail("expert_group_count", f"is {groups}, which does not divide {experts} experts")
    groups_used = k.integer("expert_group_used_count", 0, groups, 0) or groups
    if used > groups_used * (experts // groups):
        raise k.fail("expert_used_count", f"is {used}, but {groups_used} groups of "
                                          f"{experts // groups} experts are used")  # fmt: skip
    chosen = k.integer("expert_gating_func", 0, max(GATINGS), 0)
    gate = GATINGS[chosen] if chosen else gating
    rules = Routing(
        experts, used,
        k.integer("expert_shared_count", 0, 64, 0) if shared else 0,
        gate, groups, groups_used,
        # a group's score: DeepSeek-V3 adds its two best, V2 (softmax) takes the best
        2 if gate is Gating.SIGMOID else 1,
        k.boolean("expert_weights_norm", normalise),
        k.real("expert_weights_scale", 0.0, 1e6, 0.0) or 1.0,
    )  # fmt: skip
    width = k.integer("expert_feed_forward_length", 1, 1 << 20, n_ff)
    return MoeSpec(rules, width, k.integer("leading_dense_block_count", 0, 1024, 0))


def idle_expert_bytes(c: Container, moe: MoeSpec) -> int:
    """Bytes of the routed experts that a token does not take."""
    whole = sum(t.nbytes for name, t in c.tensors.items() if "_exps." in name)
    return math.floor(whole * (1 - moe.routing.used / moe.routing.experts))


def router_shapes(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """Router, expert stacks and what they may have beside them."""
    moe = s.moe
    assert moe is not None
    e, f, n = moe.routing.experts, moe.n_ff, s.n_embd
    shapes: Shapes = {"ffn_gate_inp.weight": (e, n), "ffn_down_exps.weight": (e, n, f)}
    if "ffn_gate_up_exps.weight" in s.has:
        shapes["ffn_gate_up_exps.weight"] = (e, 2 * f, n)
    else:
        shapes |= {"ffn_gate_exps.weight": (e, f, n), "ffn_up_exps.weight": (e, f, n)}
    optional: Shapes = {
        "exp_probs_b.bias": (e,), "ffn_gate_inp.bias": (e,), "ffn_gate_exps.bias": (e, f),
        "ffn_up_exps.bias": (e, f), "ffn_down_exps.bias": (e, n),
    }  # fmt: skip
    shapes |= {name: shape for name, shape in optional.items() if name in s.has}
    if moe.routing.shared:
        inner = moe.routing.shared * f
        shapes |= {
            "ffn_gate_shexp.weight": (inner, n), "ffn_up_shexp.weight": (inner, n),
            "ffn_down_shexp.weight": (n, inner),
        }  # fmt: skip
    return shapes
