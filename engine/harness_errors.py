"""How far results are from what they should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..kernels import cache_rows
from ..kernels.kernel import Array, Case


@dataclass(frozen=True)
class Errors:
    """How far outputs are from what they should be; `note` says what no limit allows."""

    nmse: float = 0.0
    max_rel: float = 0.0
    note: str = ""

    def worst(self, other: Errors) -> Errors:
        """The larger of both; the first note stays."""
        nmse, rel = max(self.nmse, other.nmse), max(self.max_rel, other.max_rel)
        return Errors(nmse, rel, self.note or other.note)


def measure(name: str, want: Array, got: Array, exact: bool = False, scale: float = 0.0) -> Errors:
    """NMSE and largest error relative to the largest value, both relative to `scale` at least.

    uint32 values, and all of them if `exact`, must be equal words; NaN never passes.
    """
    if not want.size:
        return Errors()
    if exact or want.dtype == np.uint32:
        wrong = int(np.count_nonzero(want.view(np.uint32) != got.view(np.uint32)))
        return Errors(np.inf, 0.0, f"{name}: {wrong} of {want.size} words differ") if wrong else (
            Errors()
        )
    a, b = want.astype(np.float64), got.astype(np.float64)
    bad = int(np.count_nonzero(~np.isfinite(b)))
    if bad:
        return Errors(np.inf, np.inf, f"{name}: {bad} values not finite or not written")
    bad = int(np.count_nonzero(~np.isfinite(a)))
    if bad:  # the harness compares what no one computes
        return Errors(np.inf, np.inf, f"{name}: {bad} values of the reference are not finite")
    power = max(np.square(a).sum(), a.size * scale**2, 1e-300)
    largest = max(np.abs(a).max(), scale, 1e-300)
    return Errors(float(np.square(a - b).sum() / power), float(np.abs(a - b).max() / largest))


def errors_of(case: Case, want: Mapping[str, Array], got: Mapping[str, Array]) -> Errors:
    """The worst errors over all outputs."""
    found = Errors()
    for n, a in want.items():
        b = got[n]
        if n in case.int8:
            a, b = a.view(np.int8), b.view(np.int8)
        mask = case.only.get(n, np.ones(a.shape, bool))
        a, b = cache_rows.comparable(a[mask]), cache_rows.comparable(b[mask])
        found = found.worst(measure(n, a, b, case.exact, case.scale))
    return found


def other_way(
    case: Case, want: Mapping[str, Array], got: Mapping[str, Array]
) -> dict[str, Array] | None:
    """`want` with the one quant in `yq` (one more for each 1,024) that was rounded the other way,
    a step aside, and the sum in `ys` that follows; None where there are more or none.

    Sums that differ by 1e-7 part at a value that is on the middle of two quants but for 1e-5 of a
    step: one in 1e5, and in a case of 64 values one quant is an error of 1e-5.
    """
    if "yq" not in case.int8 or "ys" not in want:
        return None
    a, b = (v["yq"].view(np.int8).reshape(-1, 16).astype(np.int32) for v in (want, got))
    moved = b - a
    count = int(np.count_nonzero(moved))
    if np.abs(moved).max() != 1 or count > 1 + moved.size // 1024:
        return None
    scales = want["ys"].reshape(-1, 2).copy()
    scales[:, 1] += scales[:, 0] * moved.sum(axis=1).astype(np.float32)
    return {**want, "yq": got["yq"], "ys": scales.reshape(want["ys"].shape)}
