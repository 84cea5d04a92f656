"""Whole-model logits of one executor against another: NMSE and top-1 agreement.

The bounds are those of the golden vectors: rounding of the KV cache and of products differs
between executors, and only int8 activations are allowed to differ visibly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .runner import Runner

Logits = npt.NDArray[np.float32]

LIMIT_F32, LIMIT_F16, LIMIT_INT8 = 1e-6, 1e-4, 5e-3
# Rounded products move values of a quantized cache to other quants: about twice its own error
# (docs/kv-cache.md) can come on top. Exact products round the same way on both sides.
LIMIT_KEYS, LIMIT_VALUES = {"q8_0": 5e-3, "q4_0": 1.0}, {"q8_0": 5e-3, "q4_0": 1e-1}
NEAR_TIE = 0.05  # a top-1/top-2 gap below this may flip by rounding alone
PREFILL, DECODE = 40, 8  # positions compared: as one batch, then one by one


@dataclass(frozen=True)
class Comparison:
    """Logits of some positions: `nmse` is the worst position's; NaN never passes."""

    name: str
    positions: int
    nmse: float
    agree: int  # positions whose best token is the same
    near_ties: int  # of the others, those that rounding may flip
    not_finite: int  # logits that are NaN or infinite on either side
    broken: int  # of them, on the reference's side: the model itself is at fault
    limit: float

    @property
    def ok(self) -> bool:
        """Within the limit, all finite, and no clear winner lost."""
        clear = self.agree + self.near_ties == self.positions
        return self.not_finite == 0 and clear and self.nmse <= self.limit

    @property
    def note(self) -> str:
        """What the table's columns do not say."""
        if self.not_finite:
            where = ", on the CPU too" if self.broken else ""
            return f"{self.not_finite} logits are NaN or infinite{where}"
        return f"{self.near_ties} near-ties differ" if self.near_ties else ""


def limit(math: str, cache: tuple[str, str]) -> float:
    """The NMSE allowed for a path: "int8", "f16" or "f32" products, types of keys and values."""
    if math == "f32":
        return LIMIT_F32 if set(cache) == {"f32"} else LIMIT_F16
    products = LIMIT_INT8 if math == "int8" else LIMIT_F16
    return max(products, LIMIT_KEYS.get(cache[0], 0.0), LIMIT_VALUES.get(cache[1], 0.0))


def compare(name: str, got: Logits, ref: Logits, allowed: float) -> Comparison:
    """Compare logits (positions, n_vocab)."""
    broken = int(np.count_nonzero(~np.isfinite(ref)))
    bad = int(np.count_nonzero(~np.isfinite(got) | ~np.isfinite(ref)))
    with np.errstate(all="ignore"):
        error = ((got.astype(np.float64) - ref) ** 2).sum(axis=1)
        power = (ref.astype(np.float64) ** 2).sum(axis=1)
        nmse = error / np.maximum(power, np.finfo(np.float64).tiny)
    best = ref.argmax(axis=1)
    same = got.argmax(axis=1) == best
    top = np.sort(ref, axis=1)[:, -2:]
    may_move = np.sqrt(allowed * power / ref.shape[1])  # a logit's root mean square error
    near = ~same & (top[:, -1] - top[:, 0] < np.maximum(NEAR_TIE, may_move))
    worst = float(nmse.max()) if not np.isnan(nmse).any() else float("nan")
    return Comparison(
        name, len(ref), worst, int(same.sum()), int(near.sum()), bad, broken, allowed
    )


def compare_runners(
    device: Runner, oracle: Runner, seed: int, allowed: float
) -> tuple[Comparison, Comparison]:
    """The same random ids through both: a prompt as one batch, then single positions."""
    rng = np.random.default_rng(seed)
    ids: list[int] = rng.integers(device.spec.n_vocab, size=PREFILL + DECODE).tolist()
    pairs = []
    for runner in (device, oracle):
        prompt = runner.logits(ids[:PREFILL])
        steps = [runner.logits([t], PREFILL + i) for i, t in enumerate(ids[PREFILL:])]
        pairs.append((prompt, np.concatenate(steps)))
    (got_p, got_d), (ref_p, ref_d) = pairs
    return (
        compare(f"prompt of {PREFILL}", got_p, ref_p, allowed),
        compare(f"{DECODE} single tokens", got_d, ref_d, allowed),
    )


