"""Benchmark results: samples and settings under llama-bench's names, so that files compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..engine.cpu_cores import available_cores
from ..engine.roof_store import cpu_name
from ..engine.stats import Summary, summarize
from .bench_options import Arm
from .environment import build_commit, build_number, drivers
from .profile_table import Phases
from .tables import count

if TYPE_CHECKING:
    from ..engine.bench_tests import Test
    from ..engine.measure import Sample
    from ..engine.runner import Opened
    from .loading import Model

SIZES = {"S": "Small", "M": "Medium", "L": "Large"}  # of K-quant mixes, as llama.cpp spells them
# The columns of llama-bench's CSV and of its table in SQL, in its order, with their SQL types.
FIELDS: dict[str, str] = {
    "build_commit": "TEXT", "build_number": "INTEGER", "cpu_info": "TEXT", "gpu_info": "TEXT",
    "backends": "TEXT", "model_filename": "TEXT", "model_type": "TEXT", "model_size": "INTEGER",
    "model_n_params": "INTEGER", "n_batch": "INTEGER", "n_ubatch": "INTEGER",
    "n_threads": "INTEGER", "cpu_mask": "TEXT", "cpu_strict": "INTEGER", "poll": "INTEGER",
    "type_k": "TEXT", "type_v": "TEXT", "n_gpu_layers": "INTEGER", "n_cpu_moe": "INTEGER",
    "split_mode": "TEXT", "main_gpu": "INTEGER", "no_kv_offload": "INTEGER",
    "flash_attn": "INTEGER", "devices": "TEXT", "tensor_split": "TEXT",
    "tensor_buft_overrides": "TEXT", "load_mode": "TEXT", "lazy_mode": "TEXT",
    "embeddings": "INTEGER", "no_op_offload": "INTEGER", "no_host": "INTEGER",
    "repack": "INTEGER", "fit_target": "INTEGER", "fit_min_ctx": "INTEGER",
    "n_prompt": "INTEGER", "n_gen": "INTEGER", "n_depth": "INTEGER", "test_time": "TEXT",
    "avg_ns": "INTEGER", "stddev_ns": "INTEGER", "avg_ts": "REAL", "stddev_ts": "REAL",
}  # fmt: skip
# Settings of llama-bench that have one value here: fused attention, a mapped file, planes.
FIXED: dict[str, Any] = {
    "cpu_mask": "0x0", "cpu_strict": False, "poll": 0, "n_cpu_moe": 0, "split_mode": "none",
    "main_gpu": 0, "no_kv_offload": False, "flash_attn": 1, "tensor_split": "0.00",
    "tensor_buft_overrides": "none", "load_mode": "mmap", "lazy_mode": "off",
    "embeddings": False, "no_op_offload": 0, "no_host": False, "repack": True, "fit_target": 0,
    "fit_min_ctx": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """What all results of one executor have in common."""

    model: Model
    opened: Opened
    arm: Arm
    warmup: bool

    @property
    def threads(self) -> int:
        """Threads of the CPU executor."""
        return self.arm.config.threads or available_cores()

    def clocks(self) -> Mapping[str, int]:
        """MHz of the device at this moment; {} on the CPU, and where they are not known."""
        from ..engine.clocks import Reading

        device = getattr(self.opened.runner, "device", None)
        return {} if device is None else Reading(device.info).result()

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU executor runs it."""
        return self.opened.backend == "CPU"


@dataclass(frozen=True)
class Result:
    """Samples of one test, oldest first, and the phases of a profiled run.

    `record`: "reuse" where recorded sequences were replayed, "each" where none was. `clocks`: MHz
    of the device right after the last sample, as far as they are known (engine/clocks.py).
    """

    setup: Setup
    test: Test
    samples: Sequence[Sample]
    phases: Phases | None = None
    record: str = "reuse"
    clocks: Mapping[str, int] = field(default_factory=dict)
    when: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each sample."""
        return [self.test.tokens / s.seconds for s in self.samples]

    @property
    def summary(self) -> Summary:
        """Of the rates."""
        return summarize(self.rates)

    def per_token(self, what: str) -> Summary:
        """Milliseconds per token of a field of `Sample`."""
        return summarize([getattr(s, what) * 1e3 / self.test.tokens for s in self.samples])

    @property
    def name(self) -> str:
        """As llama-bench's table spells the test, with the form of recording if unusual."""
        shown = self.test.name.replace("@d", " @ d")
        return shown if self.record == "reuse" else f"{shown}, {self.record}"


def model_type(model: Model) -> str:
    """Architecture, size and file type as llama-bench words them: "llama 8B Q4_K - Medium".

    Where no file type is known, as in int containers, the format that most bytes have.
    """
    from gguf import LlamaFileType

    metadata, spec = model.container.metadata, model.spec
    label = metadata.get("general.size_label") or count(spec.n_params).replace(" ", "")
    try:
        name = LlamaFileType(int(metadata["general.file_type"])).name
    except (KeyError, ValueError, TypeError):
        return f"{spec.arch} {label} {most_used(model)}"
    name = name.removeprefix("MOSTLY_").replace("ALL_F32", "all F32")
    base, _, mix = name.rpartition("_")
    if mix in SIZES and "_K" in base:
        name = f"{base} - {SIZES[mix]}"
    return f"{spec.arch} {label} {name}"


def most_used(model: Model) -> str:
    """The format of weights that most bytes of a model have."""
    from ..engine.blocks import BY_TYPE

    found: defaultdict[int, int] = defaultdict(int)
    for t in model.container.tensors.values():
        found[t.type_id] += t.nbytes
    return BY_TYPE[max(found, key=lambda kind: found[kind])].name


def record(result: Result) -> dict[str, Any]:
    """One result under llama-bench's names and in its order, then what it does not have."""
    setup, test = result.setup, result.test
    spec, config = setup.model.spec, setup.arm.config
    ns = summarize([round(s.seconds * 1e9) for s in result.samples])
    found: dict[str, Any] = FIXED | {
        "build_commit": build_commit(), "build_number": build_number(), "cpu_info": cpu_name(),
        "gpu_info": "" if setup.on_cpu else device_name(setup), "backends": setup.opened.backend,
        "model_filename": str(setup.model.container.path), "model_type": model_type(setup.model),
        "model_size": spec.weight_bytes, "model_n_params": spec.n_params,
        "n_batch": config.batch, "n_ubatch": setup.arm.ubatch, "n_threads": setup.threads,
        "type_k": config.cache_k, "type_v": config.cache_v,
        "n_gpu_layers": 0 if setup.on_cpu else 99, "devices": config.device or "auto",
        "n_prompt": test.prompt, "n_gen": test.gen, "n_depth": test.depth,
        "test_time": result.when, "avg_ns": round(ns.mean), "stddev_ns": round(ns.sd),
        "avg_ts": result.summary.mean, "stddev_ts": result.summary.sd,
    }  # fmt: skip
    return {name: found[name] for name in FIELDS} | _more(result)


def device_name(setup: Setup) -> str:
    """The device, without what the describing line adds."""
    return setup.opened.runner.describe.rsplit(" (", 1)[0]


def _more(result: Result) -> dict[str, Any]:
    """Fields beyond llama-bench's."""
    s, setup = result.summary, result.setup
    phases: Mapping[str, Any] = {"profile": result.phases.as_json()} if result.phases else {}
    clocks: Mapping[str, Any] = {"clocks": dict(result.clocks)} if result.clocks else {}
    return {
        "test": result.test.name,
        "device": setup.opened.runner.describe,
        "driver": "" if setup.on_cpu else drivers().get(device_name(setup), ""),
        "math": setup.arm.config.math,
        "record": result.record,
        "warmup": setup.warmup,
        "median_ts": s.median, "min_ts": s.min, "max_ts": s.max,
        "cpu_ms_per_token": result.per_token("process_seconds").mean,
        "thread_ms_per_token": result.per_token("thread_seconds").mean,
        "samples_ns": [round(x.seconds * 1e9) for x in result.samples],
        "samples_ts": result.rates,
        **clocks, **phases,
    }  # fmt: skip
