"""Benchmark results: llama-bench's Markdown columns and JSON names, so that files compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..engine.cpu_cores import available_cores
from ..engine.stats import Summary, summarize
from .tables import count, markdown_row, markdown_rule, size

if TYPE_CHECKING:
    from ..engine.measure import Test
    from ..engine.runner import Opened, RunnerConfig
    from .loading import Model

SIZES = {"S": "Small", "M": "Medium", "L": "Large"}  # of K-quant mixes, as llama.cpp spells them


@dataclass(frozen=True)
class Column:
    """Header, width in characters (llama-bench's) and alignment ("r" or "l")."""

    name: str
    width: int
    align: str


@dataclass(frozen=True)
class Setup:
    """What all rows of one run have in common."""

    model: Model
    opened: Opened
    config: RunnerConfig
    warmup: bool

    @property
    def threads(self) -> int:
        """Threads of the CPU executor."""
        return self.config.threads or available_cores()

    def cells(self) -> list[tuple[Column, str]]:
        """The columns before the test, with what they hold; unusual settings get their own."""
        spec, config = self.model.spec, self.config
        found = [
            (Column("model", 30, "l"), model_type(self.model)),
            (Column("size", 10, "r"), size(spec.weight_bytes)),
            (Column("params", 10, "r"), count(spec.n_params)),
            (Column("backend", 10, "l"), self.opened.backend),
            (Column("threads", 7, "r"), str(self.threads))
            if self.opened.backend == "CPU"
            else (Column("ngl", 3, "r"), "99"),  # llama-bench's word for "all layers on the GPU"
        ]
        for name, value, default in (
            ("type_k", config.cache_k, "f16"),
            ("type_v", config.cache_v, "f16"),
            ("math", config.math, "auto"),
        ):
            if value != default:
                found.append((Column(name, 6, "r"), value))
        return found


@dataclass(frozen=True)
class Result:
    """Samples of one test in seconds, oldest first, and the phases of a profiled run."""

    test: Test
    seconds: list[float]
    phases: Mapping[str, float] = field(default_factory=dict)
    profiled_seconds: float = 0.0

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each sample."""
        return [self.test.tokens / s for s in self.seconds]

    @property
    def summary(self) -> Summary:
        """Of the rates."""
        return summarize(self.rates)


def model_type(model: Model) -> str:
    """Architecture, size and file type as llama-bench words them: "llama 8B Q4_K - Medium"."""
    from gguf import LlamaFileType

    metadata, spec = model.container.metadata, model.spec
    label = metadata.get("general.size_label") or count(spec.n_params).replace(" ", "")
    try:
        name = LlamaFileType(int(metadata["general.file_type"])).name
    except (KeyError, ValueError, TypeError):
        return f"{spec.arch} {label}"
    name = name.removeprefix("MOSTLY_").replace("ALL_F32", "all F32")
    base, _, mix = name.rpartition("_")
    if mix in SIZES and "_K" in base:
        name = f"{base} - {SIZES[mix]}"
    return f"{spec.arch} {label} {name}"


class MarkdownTable:
    """Rows as they come, under a header that is written before the first of them."""

    def __init__(self, setup: Setup) -> None:
        self._fixed = setup.cells()
        columns = [c for c, _ in self._fixed]
        columns += [Column("test", 15, "r"), Column("t/s", 20, "r")]
        self._names = [c.name for c in columns]
        self._widths = [c.width for c in columns]
        self._align = "".join(c.align for c in columns)
        self._started = False

    def lines(self, result: Result) -> list[str]:
        """The row, after the header when it is the first one."""
        s = result.summary
        cells = [text for _, text in self._fixed]
        cells += [result.test.name, f"{s.mean:.2f} ± {s.sd:.2f}"]
        row = markdown_row(cells, self._widths, self._align)
        if self._started:
            return [row]
        self._started = True
        header = markdown_row(self._names, self._widths, self._align)
        return [header, markdown_rule(self._widths, self._align), row]


def as_json(setup: Setup, result: Result) -> dict[str, Any]:
    """One result under llama-bench's names, plus median, extremes and phases."""
    s, nanoseconds = result.summary, [round(x * 1e9) for x in result.seconds]
    ns = summarize(nanoseconds)
    spec, config, prompt = setup.model.spec, setup.config, result.test.kind == "pp"
    return {
        "test": result.test.name,
        "model_filename": str(setup.model.container.path),
        "model_type": model_type(setup.model),
        "model_size": spec.weight_bytes,
        "model_n_params": spec.n_params,
        "backends": setup.opened.backend,
        "device": setup.opened.runner.describe,
        "n_threads": setup.threads,
        "n_batch": config.batch,
        "type_k": config.cache_k,
        "type_v": config.cache_v,
        "math": config.math,
        "n_prompt": result.test.tokens if prompt else 0,
        "n_gen": 0 if prompt else result.test.tokens,
        "n_depth": 0,
        "warmup": setup.warmup,
        "test_time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "avg_ns": round(ns.mean),
        "stddev_ns": round(ns.sd),
        "avg_ts": s.mean,
        "stddev_ts": s.sd,
        "median_ts": s.median,
        "min_ts": s.min,
        "max_ts": s.max,
        "samples_ns": nanoseconds,
        "samples_ts": result.rates,
        **({"phases_s": dict(result.phases), "profiled_s": result.profiled_seconds}
           if result.phases else {}),
    }
