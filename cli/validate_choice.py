"""Which kernels and primitives `validate` runs: `--only`, `--shapes`, and their lists."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.errors import UsageError
from .tables import table

if TYPE_CHECKING:
    from ..engine.primitives import Check, Primitive
    from ..kernels.kernel import Kernel

ANY_ROOM = 1 << 62  # lists name the whole shapes, not what one device's bindings leave of them


@dataclass(frozen=True)
class Chosen:
    """Kernels whose own cases run, and primitives. `patterns` are those of `--only`."""

    kernels: list[Kernel]
    primitives: list[Primitive]
    patterns: tuple[str, ...] = ()

    def checks(self, primitive: Primitive, checks: Sequence[Check]) -> list[Check]:
        """Those that a pattern names, or all if the primitive itself is named."""
        if not self.patterns or any(fits(primitive.name, p) for p in self.patterns if "/" not in p):
            return list(checks)
        names = [f"{primitive.name}/{c.name}" for c in checks]
        found = {name for p in self.patterns if "/" in p for name in named(names, p)}
        return [c for c, name in zip(checks, names, strict=True) if name in found]


def named(names: Sequence[str], pattern: str) -> list[str]:
    """The one of this name, else those that `fits` finds."""
    return [pattern] if pattern in names else [n for n in names if fits(n, pattern)]


def fits(name: str, pattern: str) -> bool:
    """Whether a name holds a text, or matches a pattern with *, ? or [ ]."""
    if any(c in pattern for c in "*?["):
        return fnmatch.fnmatchcase(name, pattern)
    return pattern in name


def split(only: Sequence[str]) -> tuple[str, ...]:
    """The names of all --only options; commas separate them."""
    found = tuple(part.strip() for text in only for part in text.split(","))
    if "" in found:
        raise UsageError("--only: a name is empty")
    return found


def choose(only: Sequence[str]) -> Chosen:
    """What --only names: kernels, primitives, or `PRIMITIVE/CASE`. UsageError if one fits none."""
    from ..engine.harness import all_kernels
    from ..engine.primitives import all_primitives

    kernels, primitives, patterns = all_kernels(), all_primitives(), split(only)
    if not patterns:
        return Chosen(kernels, primitives)
    all_k: list[Kernel] = []
    all_p: list[Primitive] = []
    for pattern in patterns:
        names = [*(k.name for k in kernels), *(p.name for p in primitives)]
        found = named(names, pattern)
        k = [x for x in kernels if x.name in found]
        p = [x for x in primitives if x.name in found or _has_case(x, pattern)]
        if not (k or p):
            raise UsageError(f"--only {pattern}: no such kernel, primitive or PRIMITIVE/CASE; "
                             "'validate --list' names them")  # fmt: skip
        all_k += k
        all_p += p
    return Chosen([k for k in kernels if k in all_k], [p for p in primitives if p in all_p],
                  patterns)  # fmt: skip


def _has_case(primitive: Primitive, pattern: str) -> bool:
    """Whether "PRIMITIVE/CASE" names one of its checks."""
    if "/" not in pattern or not fits(primitive.name, pattern.split("/", 1)[0]):
        return False
    return any(fits(f"{primitive.name}/{c.name}", pattern) for c in primitive.checks(ANY_ROOM))


def show(chosen: Chosen, verbose: bool) -> None:
    """Names with the number of cases; with `verbose` the reasons of limits and every check."""
    import numpy as np

    rows = []
    for k in chosen.kernels:
        cases = sum(1 for _ in k.cases(np.random.default_rng(0)))
        rows.append((k.name, str(cases), str(len(k.interface.builds))))
    if rows:
        table(("kernel", "cases", "builds"), rows, right="lrr")
    more = []
    for p in chosen.primitives:
        checks = chosen.checks(p, list(p.checks(ANY_ROOM)))
        more.append((p.name, str(len(checks)), str(p.limit), p.title))
    if more:
        table(("primitive", "checks", "limit", "what"), more, right="lrrl")
    if verbose and more:
        reasons = [(p.name, str(p.limit), p.limit.reason) for p in chosen.primitives]
        table(("primitive", "limit", "because"), reasons, right="lrl")
    if verbose:
        named = [(f"{p.name}/{c.name}", ", ".join(k.name for k in c.kernels))
                 for p in chosen.primitives
                 for c in chosen.checks(p, list(p.checks(ANY_ROOM)))]  # fmt: skip
        if named:
            table(("check", "kernels"), named)
