"""`validate --compare-chains`: fused and unfused forms of a model, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..engine.errors import UsageError
from .interrupt import Interrupt
from .loading import Model, open_file
from .model_check import ModelCheck
from .output import StatusLine, load_bar, note
from .validate_report import Report, Section

if TYPE_CHECKING:
    from ..engine.device import Device
    from ..engine.harness_layers import Floats, Trace, Traces

TOKENS = 12  # positions; every form sees the same random ids
MATHS = ("f32", "int8", "f16")
# Streams carry values that the last layers take away again: what is left is small beside errors
# that were small beside the whole. Logits have the limits of whole models.
LAYERS = 10.0


@dataclass
class Column:
    """One form against another: a value for each layer, then for the logits.

    `limit`: largest NMSE of logits; `exact`: values that differ, of which there must be none.
    """

    title: str
    limit: float
    exact: bool = False
    values: list[float] = field(default_factory=list)

    def good(self, i: int) -> bool:
        """Whether an entry is within its limit."""
        last = i == len(self.values) - 1
        return self.values[i] <= self.limit * (1.0 if last else LAYERS)

    @property
    def meaning(self) -> str:
        """What the entries are."""
        if self.exact:
            return "values that differ, none allowed"
        return f"NMSE, limit {LAYERS * self.limit:.0e}, of logits {self.limit:.0e}"

    @property
    def ok(self) -> bool:
        """Whether all are."""
        return all(self.good(i) for i in range(len(self.values)))

    def cell(self, i: int) -> str:
        """An entry; those beyond the limit are marked."""
        text = f"{self.values[i]:.0f}" if self.exact else f"{self.values[i]:.1e}"
        return text if self.good(i) else f"{text} FAIL"


def compare_chains(check: ModelCheck, report: Report, stop: Interrupt) -> None:
    """Every form that the device has against single tokens in float32, and against itself with
    each dispatch submitted alone. Adds a table with a line per layer."""
    from ..engine.choice import ANY_VULKAN
    from ..engine.device import open_device

    which = check.config.device
    with open_file(check.path) as model, open_device(
        None if which == ANY_VULKAN else which
    ) as device:
        note(f"device: {device.describe}")
        report.device = report.device or device.info
        columns = Forms(check, model, device, stop).columns()
    add(columns, model.spec.n_layer, check.path.name, report)


class Forms:
    """Runs the forms, one set of weights on the device at a time."""

    def __init__(self, check: ModelCheck, model: Model, device: Device, stop: Interrupt) -> None:
        import numpy as np

        self.check, self.model, self.device, self.stop = check, model, device, stop
        vocabulary = model.spec.n_vocab
        self.ids: list[int] = np.random.default_rng(check.seed).integers(
            vocabulary, size=TOKENS
        ).tolist()  # fmt: skip
        self.base: Trace | None = None
        self.status = StatusLine()

    def columns(self) -> list[Column]:
        """The comparisons, those with other products behind those in float32."""
        found: list[Column] = []
        for math in MATHS:
            if self.stop.pressed:
                break
            try:
                with self.loaded(math) as traces:
                    self.status.show(f"{math} products: {TOKENS} tokens in every form")
                    found += self.compare(traces, math)
                    self.status.show("")
            except UsageError as e:
                note(f"note: without {math} products: {e}")
        return found

    @contextmanager
    def loaded(self, math: str) -> Iterator[Traces]:
        """The model with these products; frees its buffers at the end."""
        from ..engine.harness_layers import Traces

        config = self.check.config
        with load_bar(f"loading for {math} products") as bar:

            def progress(done: int, total: int) -> None:
                self.stop.check()
                bar(done, total)

            made = Traces(
                self.model.container, self.model.spec, self.device, n_ctx=256, tokens=TOKENS,
                caches=(config.cache_k, config.cache_v), math=math, progress=progress,
            )  # fmt: skip
        yield made

    def compare(self, traces: Traces, math: str) -> Iterator[Column]:
        """The columns of one kind of products."""
        from ..engine.compare import limit

        caches = self.check.config.cache_k, self.check.config.cache_v
        token = traces.one_by_one(self.ids)
        kind = "int8" if traces.products.int8 else "f32"
        if self.base is None:
            self.base = token
        elif kind != "f32":
            yield self.column(f"{kind} token / f32 token", token, limit(kind, caches))
        if kind == math:
            apart, whole = traces.one_by_one(self.ids, apart=True), traces.one_by_one(
                self.ids, keep=False
            )
            yield self.same(f"{kind} token, one sequence / dispatch by dispatch", token, apart,
                            whole)  # fmt: skip
        if traces.products.batches == math:
            batch = traces.at_once(self.ids)
            yield self.column(f"{math} batch / f32 token", batch, limit(math, caches))

    def column(self, title: str, got: Trace, allowed: float) -> Column:
        """NMSE of a form against single tokens in float32, the worst token of each layer."""
        from ..engine.harness_layers import divergence

        assert self.base is not None
        want = self.base
        values = [divergence(a, b) for a, b in zip(got.layers, want.layers, strict=True)]
        last = divergence(got.logits, want.logits[-len(got.logits) :])
        return Column(title, allowed, values=[*values, last])

    def same(self, title: str, token: Trace, apart: Trace, whole: Trace) -> Column:
        """Differing values; the logits are those of sequences without copies in between."""
        from ..engine.harness_layers import different

        def count(a: Floats, b: Floats) -> float:
            return float(different(a, b))

        values = [count(a, b) for a, b in zip(token.layers, apart.layers, strict=True)]
        logits = max(count(whole.logits, apart.logits), count(token.logits, apart.logits))
        return Column(title, 0.0, True, [*values, logits])


def add(columns: list[Column], layers: int, name: str, report: Report) -> None:
    """A line for each layer, one for the logits; what the columns are is said below."""
    heads = [f"({i + 1})" for i in range(len(columns))]
    names = [*(f"blk.{i}" for i in range(layers)), "logits"]
    rows = [(n, *(c.cell(i) for c in columns)) for i, n in enumerate(names)]
    meaning = [f"{head} {c.title}: {c.meaning}" for head, c in zip(heads, columns, strict=True)]
    failed = sum(not c.ok for c in columns)
    records: list[dict[str, Any]] = [
        {"comparison": c.title, "limit": c.limit, "measure": "exact" if c.exact else "NMSE",
         "values": c.values, "ok": c.ok} for c in columns
    ]  # fmt: skip
    last = f"{len(columns)} comparisons, {failed} failed"
    report.add(Section("chains", f"Forms of {name}, layer by layer", ("layer", *heads), rows,
                       "l" + "r" * len(columns), records, "\n".join([*meaning, last])), failed)
