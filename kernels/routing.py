"""Choice of experts: gating, groups, selection, weights. The reference of both router kernels.

A route is float32 (tokens, slots, 2): number of the expert and weight, the chosen ones in order of
their scores, then the shared ones with weight 1. Of equal scores the lower number comes
first. Rules: DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437) and llama.cpp's build_moe_ffn.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.blocks import FORMATS
from .kernel import Array, Matrix, Params
from .limits import Limits
from .reference import Floats

NOBODY = -1  # expert of a slot that --expert-top-p left empty
SUM_FLOOR = 2.0**-14  # smallest sum of weights that normalisation divides by


class Gating(enum.IntEnum):
    """How logits become weights; GGUF's expert_gating_func counts from 1."""

    SOFTMAX = 0  # over all experts, before the choice
    SIGMOID = 1
    CHOSEN = 2  # softmax over the chosen ones


@dataclass(frozen=True)
class Routing:
    """The rules of one layer. `group_best`: how many experts of a group make up its score;
    `scale` multiplies the weights, whether normalised or not."""

    experts: int
    used: int
    shared: int = 0
    gating: Gating = Gating.SOFTMAX
    groups: int = 1
    groups_used: int = 1
    group_best: int = 2
    normalise: bool = False
    scale: float = 1.0
    top_p: float = 1.0

    @property
    def slots(self) -> int:
        """Experts that work for a token, the shared ones included."""
        return self.used + self.shared

    def params(self) -> dict[str, int | float]:
        """Parameters of the router kernels; some become specialization constants."""
        return {
            "experts": self.experts, "used": self.used, "shared": self.shared,
            "groups": self.groups, "gating": int(self.gating), "groups_used": self.groups_used,
            "group_best": self.group_best, "scale": self.scale,
            "sum_floor": SUM_FLOOR if self.normalise else 0.0, "top_p": self.top_p,
        }  # fmt: skip


def spec(params: Params, size: int) -> tuple[int, ...]:
    """Specialization constants of router.glsl."""
    return (size, *(int(params[k]) for k in ("experts", "groups", "used", "shared")))


def workgroup(params: Params, limits: Limits, most: int) -> int:
    """Invocations for that many experts."""
    size = 32
    while size < min(most, int(params["experts"])):
        size *= 2
    return limits.workgroup(size)


def gate(logits: Floats, gating: int) -> Floats:
    """Values of the gating function (n, experts)."""
    if gating == Gating.SOFTMAX:
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True), np.float32)
    with np.errstate(over="ignore"):
        return logits if gating == Gating.CHOSEN else (1 / (1 + np.exp(-logits))).astype(np.float32)


def best(values: Floats, count: int) -> Array:
    """Indices of the `count` largest values, from the largest on; the lower index of equals."""
    return np.argsort(-np.where(np.isnan(values), -np.inf, values), kind="stable")[:count]


def choose(
    logits: Array, b: Array, *, experts: int, used: int, shared: int, groups: int, gating: int,
    groups_used: int, group_best: int, scale: float, sum_floor: float, top_p: float,
) -> Array:
    """The route float32 (n, slots, 2) for logits (n, experts); b (2, experts): added to the
    logits, added to the scores."""
    probs = gate(logits + b[0], gating)
    out = np.ones((len(logits), used + shared, 2), np.float32)
    for row, prob in zip(out, probs, strict=True):
        score = prob + b[1]
        if groups > 1:
            members = score.reshape(groups, -1)
            tops = np.sort(members, axis=1)[:, ::-1][:, : group_best].sum(axis=1)
            kept = np.zeros(groups, bool)
            kept[best(tops, groups_used)] = True
            score = np.where(np.repeat(kept, experts // groups), score, -np.inf)
        ids = best(score, used)
        weights = _weights(prob[ids], gating, sum_floor, top_p)
        row[:used, 0] = ids if top_p >= 1 else np.where(weights > 0, ids, NOBODY)
        row[:used, 1] = weights * np.float32(scale)
        row[used:, 0] = experts + np.arange(shared)
    return out


def _weights(prob: Floats, gating: int, sum_floor: float, top_p: float) -> Floats:
    """Weights of the chosen before the scale; zero for those that top_p drops."""
    if gating == Gating.CHOSEN:
        prob = gate(prob[None], Gating.SOFTMAX)[0]
    before = np.cumsum(prob) - prob
    drop = before >= np.float32(top_p) * prob.sum() if top_p < 1 else np.zeros(len(prob), bool)
    drop[0] = False
    w = np.where(drop, np.float32(0), prob)
    return np.asarray(w / max(w.sum(), sum_floor) if sum_floor > 0 else w, np.float32)


def unpack(route: Array) -> tuple[Array, Floats]:
    """Experts int64 and weights float32, both (n, slots)."""
    return route[..., 0].astype(np.int64), route[..., 1]


# Rules of the families at hand, and what no family combines
RULES: Mapping[str, Routing] = {
    "softmax": Routing(8, 2),
    "softmax norm": Routing(128, 8, normalise=True),
    "softmax scale shared": Routing(5, 3, shared=2, scale=2.0),
    "one expert": Routing(1, 1, normalise=True),
    "sigmoid norm scale": Routing(8, 2, 1, Gating.SIGMOID, normalise=True, scale=2.5),
    "sum of two": Routing(8, 3, 1, Gating.SIGMOID, 4, 2, 2, True, 2.5),
    "largest of group": Routing(160, 6, 2, Gating.SOFTMAX, 8, 3, 1, False, 16.0),
    "groups of 256": Routing(256, 8, 1, Gating.SIGMOID, 8, 4, 2, True, 2.5),
    "384 experts": Routing(384, 8, 1, Gating.SIGMOID, normalise=True, scale=2.827),
    "chosen": Routing(32, 4, gating=Gating.CHOSEN),
    "top-p": Routing(64, 6, gating=Gating.SOFTMAX, normalise=True, top_p=0.7),
}


def case_bias(rng: np.random.Generator, rule: Routing) -> Any:
    """Rows for b: a router bias for CHOSEN, a selection bias for SIGMOID."""
    b = np.zeros((2, rule.experts), np.float32)
    if rule.gating != Gating.SOFTMAX:
        b[int(rule.gating == Gating.SIGMOID)] = rng.standard_normal(rule.experts) * 0.3
    return b


def f32_matrix(values: Any) -> Matrix:
    """Values (rows, cols) as a weight in float32."""
    raw = np.ascontiguousarray(values, np.float32)
    return Matrix.of(FORMATS["F32"], raw.view(np.uint8).reshape(-1), raw.shape[1])
