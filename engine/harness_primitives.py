"""Checks of primitives on a device: which of them, their inputs ahead of time, their verdicts."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kernels.kernel import Array
from .ahead import compile_pipeline, pipeline_key
from .blocks import Matrix
from .cpu_cores import available_cores
from .device import Device
from .harness import CaseResult, can_run, shape_of
from .harness_ahead import in_advance
from .harness_bound import Bound, Loader
from .harness_chain import Chain, compare, reference, same
from .harness_errors import Errors
from .harness_stages import rounds, stages
from .layout import binding_limit
from .primitives import ROUNDED, Check, Primitive

SAMPLE = 3  # checks of each primitive where not all of them run
MANY = 1e-4  # NMSE of int8 results in stages; rounding them has 2e-5, one flipped input up to 5e-5
STAGES = "stage by stage"  # the note of a chain that rounds to int8 between
AHEAD = 16  # checks whose references run while the device works


@dataclass(frozen=True)
class Prepared:
    """A check with its inputs and what its references make of them."""

    check: Check
    chain: Chain
    want: dict[str, Array]


def runnable(device: Device, primitive: Primitive) -> list[Check]:
    """The checks that a device can run."""
    found = primitive.checks(binding_limit(device))
    return [
        c for c in found
        if all(can_run(device, k) for k in c.kernels) and c.suits(device.limits)
    ]  # fmt: skip


def sample(checks: list[Check], primitive: Primitive, seed: int, count: int) -> list[Check]:
    """Some checks of a primitive, others with every seed."""
    rng = np.random.default_rng([seed, zlib.crc32(primitive.name.encode())])
    chosen = rng.permutation(len(checks))[:count]
    return [checks[i] for i in sorted(chosen)]


def prepare(
    checks: Iterable[Check], primitive: Primitive, seed: int, ahead: int,
    device: Device | None = None,
) -> Iterator[Prepared]:
    """Inputs and references, `ahead` checks in advance on threads (0: when they are asked for).

    Their pipelines for `device` are compiled there too, each once.
    """
    for _, item in prepare_all(((primitive, check) for check in checks), seed, ahead, device):
        yield item


def prepare_all(
    checks: Iterable[tuple[Primitive, Check]], seed: int, ahead: int, device: Device | None = None
) -> Iterator[tuple[Primitive, Prepared]]:
    """The same of several primitives, the next one's while the last one's are still at work."""
    compiled: set[tuple[Any, ...]] = set()

    def one(item: tuple[Primitive, Check]) -> tuple[Primitive, Prepared]:
        primitive, check = item
        chain = check.chain(seed, primitive.name)
        if device:
            compile_links(device, chain, compiled)
        want = reference(chain)
        for value in chain.operands.values():
            if isinstance(value, Matrix):
                value.forget()  # many checks wait for the device
        return primitive, Prepared(check, chain, want)

    yield from in_advance(one, checks, ahead)


def compile_links(device: Device, chain: Chain, compiled: set[tuple[Any, ...]]) -> None:
    """Put the pipelines of a chain into the device's cache, but for those in `compiled`."""
    for link in chain.links:
        shapes = {n: shape_of(n, v) for n, v in chain.operands_of(link).items()}
        launch = link.kernel.launch(shapes, link.params, link.rows, device.limits)
        key = pipeline_key(link.kernel, launch)
        if key not in compiled:
            compiled.add(key)
            compile_pipeline(device, link.kernel, launch)


class Checker:
    """Runs checks on an open device."""

    def __init__(self, device: Device, seed: int) -> None:
        self.device, self.seed = device, seed
        self._loader = Loader(device)
        # on software the device needs the cores itself
        self.ahead = 0 if device.limits.software else min(AHEAD, available_cores())

    def results(
        self, primitive: Primitive, checks: Iterable[Check], told: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> Iterator[CaseResult]:
        """One result for each check, two for those issued in two ways; until `stopped()`."""
        items = ((primitive, check) for check in checks)
        for _, found in self.all_results(items, lambda p, name: told(name), stopped):
            yield found

    def all_results(
        self, checks: Iterable[tuple[Primitive, Check]], told: Callable[[Primitive, str], None],
        stopped: Callable[[], bool],
    ) -> Iterator[tuple[Primitive, CaseResult]]:
        """The same of several primitives."""
        device = self.device if self.ahead else None
        ready = prepare_all(checks, self.seed, self.ahead, device)
        try:
            for primitive, item in ready:
                if stopped():
                    return
                told(primitive, item.check.name)
                for found in self._run(primitive, item):
                    yield primitive, found
        finally:
            ready.close()  # type: ignore[attr-defined]

    def _run(self, primitive: Primitive, item: Prepared) -> Iterator[CaseResult]:
        bound = Bound(self.device, item.chain, self._loader)
        got = bound.run()
        found = verdict(primitive, item, compare(item.chain, item.want, got), bound.builds)
        if not found.ok and rounds(item.chain):
            found = by_stages(primitive, item, bound.everything(), bound.builds)
        yield found
        if item.check.issued:
            errors = same(got, bound.run_in_flight())
            yield CaseResult(
                primitive.name, f"{item.check.name} in flight", found.build, errors.nmse,
                errors.max_rel, 0.0, not errors.note, errors.note, "exact",
            )  # fmt: skip
        bound.free()


def verdict(
    primitive: Primitive, item: Prepared, errors: tuple[Errors, Errors], builds: str
) -> CaseResult:
    """Float outputs against the primitive's limit, int8 ones against a step of theirs."""
    floats, rounded = errors
    limit = primitive.limit
    error = floats.nmse if limit.measure == "NMSE" else floats.max_rel
    note = floats.note or rounded.note
    if not note and rounded.max_rel > ROUNDED:
        note = f"int8 results differ by {rounded.max_rel:.1e} of the largest value"
    ok = not note and error <= limit.value
    if any(not o.scales for o in item.chain.outputs):
        return result(primitive, item, builds, floats, limit.value, limit.measure, ok, note)
    return result(primitive, item, builds, rounded, ROUNDED, "max rel", ok, note)


def by_stages(
    primitive: Primitive, item: Prepared, got: dict[str, Array], builds: str
) -> CaseResult:
    """The verdict over stages, each by itself: that of the first that fails, else of the worst."""
    floats, rounded = Errors(), Errors()
    for link, *errors in stages(item.chain, got):
        floats, rounded = floats.worst(errors[0]), rounded.worst(errors[1])
        found = verdict(primitive, item, (floats, rounded), builds)
        many = "too many int8 results differ" if rounded.nmse > MANY else ""
        if many or not found.ok:
            why = found.note or many or "beyond the limit"
            return replace(found, ok=False, note=f"{link.kernel.name}: {why}")
    return replace(found, note=STAGES)


def result(
    primitive: Primitive, item: Prepared, builds: str, errors: Errors, limit: float, measure: str,
    ok: bool, note: str,
) -> CaseResult:
    """The result of one check."""
    return CaseResult(primitive.name, item.check.name, builds, errors.nmse, errors.max_rel, limit,
                      ok, note, measure)  # fmt: skip
