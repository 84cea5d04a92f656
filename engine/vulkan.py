"""The Vulkan executor: plans recorded once into Kompute sequences, replayed for every token.

All that changes from token to token lies in the step buffer on the device, so a recording serves
every position. A decode submit holds several steps; the drawn token is the next step's input
without a visit to the host, and a stop flag turns the steps after the last into no-ops.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.sampling_plan import history_dispatch, sampling_dispatches
from . import step
from .ahead import Ahead
from .buffers import Buffers
from .builder import SHORT
from .container import Container
from .device import Device
from .forward import Forward
from .pace import Pace
from .plan import Plan
from .products import plan_options
from .profile import HOST, Profile
from .progress import Progress
from .reach import Reach
from .recorder import Algorithms, Hazards, Prepared, offsets
from .roof_store import roof_file
from .sampler import Sampling, settings_words
from .spec import ModelSpec
from .step import StopReason
from .work import Work

SMOOTH_SECONDS = 0.05  # longest submit that still streams smoothly
MAX_CHUNK = 16
FIRST = 16  # tokens of a first prompt, for which pipelines are compiled ahead
WIDE = 128  # tokens of the widest tiles of products (kernels/matmul_*_launch.py)


class VulkanRunner:
    """One model on one Vulkan device. See engine/runner.py for what callers may expect."""

    def __init__(
        self, container: Container, spec: ModelSpec, device: Device, n_ctx: int,
        cache_k: str = "f16", cache_v: str = "f16", batch: int = 512, math: str = "auto",
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.spec, self.n_ctx, self.device = spec, n_ctx, device
        caches = cache_k, cache_v
        products, opts = plan_options(container, spec, device, n_ctx, batch, caches, math)
        self._pace = Pace(opts.batch, device.info.type, spec.n_params)
        self.batch = self._pace.batch
        self.chunk = 1
        self.describe = (
            f"{device.info.name} (Vulkan, {products.describe}, {cache_k} keys, {cache_v} values)"
        )
        self._forward = Forward(container, spec, opts)
        logits, words, tokens = self._forward.logits, self._forward.step, self._forward.tokens
        self._sampling, _ = sampling_dispatches(logits, words, tokens, n_ctx)
        self._history = history_dispatch(words, tokens, spec.n_vocab, n_ctx)
        forms = self._forward.forms(self._sampling, self._history)
        self._decode_plan = forms["decode"]
        self._short_plan = forms.get("decode short", self._decode_plan)
        self._score_plan = self._forward.score()
        self._algorithms = Algorithms(device)
        self._algorithms.ahead = self._ahead = Ahead(device)
        for plan in forms.values():
            self._compile(plan)
        self._buffers = Buffers(
            device, self._algorithms, tuple(forms.values()), self._forward.weights.all
        )
        self._start = self._buffers.starter()
        device.eval(self._start)  # counters between workgroups start from zero
        self._buffers.load(spec.ropes, progress)
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._ready: dict[tuple[Any, ...], list[Prepared]] = {}
        self._sequences: dict[tuple[Any, ...], Any] = {}
        self._timed: dict[tuple[Any, ...], list[str]] = {}
        self._profile = Profile()
        self._replays = True
        self._progress = Progress(n_ctx, Reach(spec, opts))

    def _compile(self, plan: Plan) -> None:
        """Have the pipelines of a plan compiled while weights are uploaded."""
        for d in plan.dispatches:
            for rows in {min(n, plan.rows) for n in (FIRST, plan.rows)}:
                launch = d.kernel.launch(d.operands, d.params, rows, self.device.limits)
                self._ahead.add(d.kernel, launch)

    # --- recording -----------------------------------------------------------------------------

    def _prepared(self, plan: Plan, rows: int) -> list[Prepared]:
        """The dispatches of a plan for a batch of up to `rows`, made once."""
        key = plan.name, len(plan.dispatches), rows
        if key not in self._ready:
            hazards = Hazards()
            self._ready[key] = [
                self._algorithms.prepare(
                    d.kernel, {name: self._buffers.tensor(op) for name, op in d.operands.items()},
                    d.operands, offsets(d, self._buffers.places), rows, hazards.admit(d),
                )
                for d in plan.dispatches
            ]  # fmt: skip
        return self._ready[key]

    def _record(self, seq: Any, plan: Plan, rows: int) -> list[str]:
        """Record a plan for a batch of up to `rows`; returns the phase of every dispatch."""
        for prepared in self._prepared(plan, rows):
            prepared.record(self.device, seq)
        return [d.phase.value for d in plan.dispatches]

    def _sequence(self, key: tuple[Any, ...], plan: Plan, rows: int, steps: int = 1) -> Any:
        """The recorded sequence of a plan; while profiling, one with a timestamp per dispatch."""
        key = (*key, self._profile.on)
        if key not in self._sequences or not self._replays:
            inputs = [self._buffers["step"], self._buffers["tokens"]]
            uploads = inputs if key[0] != "decode" else []
            results = self._buffers["all_logits" if key[0] == "score" else "out"]
            stamps = len(plan.dispatches) * steps + 2 if self._profile.on else 0
            seq = self.device.sequence(stamps)
            if uploads:
                self.device.sync_device(seq, uploads)
            phases: list[str] = [HOST] if uploads else []
            for _ in range(steps):
                phases += self._record(seq, plan, rows)
            if key[0] != "feed":
                self.device.sync_local(seq, [results])
            self._sequences[key], self._timed[key] = seq, phases
        return self._sequences[key]

    def _eval(self, key: tuple[Any, ...], seq: Any) -> None:
        start = time.perf_counter()
        self.device.eval(seq)
        if not self._profile.on:
            return
        wall = time.perf_counter() - start
        spans: defaultdict[str, float] = defaultdict(float)
        for phase, span in zip(self._timed[(*key, True)], self.device.elapsed(seq), strict=False):
            if phase != HOST:
                spans[phase] += float(span)
        self._profile.took(spans, wall)

    # --- generation ----------------------------------------------------------------------------

    def begin(self, sampling: Sampling, end_ids: Collection[int], limit: int) -> None:
        """Start a generation at position 0 with cleared state."""
        self._progress.begin(sampling, limit)
        settings = settings_words(sampling, end_ids)
        self._buffers["settings"].data()[: len(settings)] = settings
        self.device.eval(self._start)

    def _set_step(self, ids: Sequence[int], pos: int) -> None:
        self._buffers["step"].data()[: step.WORDS] = self._progress.words(ids, pos)
        self._buffers["tokens"].data()[: len(ids)] = np.asarray(ids, np.uint32)

    def prefill(self, ids: Sequence[int], *, sample: bool) -> None:
        """Append ids at the current position; with `sample`, draw the token after them.

        Adapts `batch` to the time that it takes. A few tokens more than fill the widest tiles go
        apart: they would cost as much as another whole tile.
        """
        extra = len(ids) % WIDE
        if 0 < extra <= self._forward.opts.few and len(ids) > WIDE:
            self._feed(ids[:-extra], False)
            ids = ids[-extra:]
        self._feed(ids, sample)

    def _feed(self, ids: Sequence[int], sample: bool) -> None:
        rows = 1
        while rows < len(ids):
            rows *= 2
        rows = min(rows, self._pace.most)
        key = ("prompt" if sample else "feed", rows)
        if key not in self._plans:
            tail = (self._history, *(self._sampling if sample else ()))
            self._plans[key] = self._forward.prefill(rows, tail, head=sample)
        self._set_step(ids, self._progress.pos)
        seq = self._sequence(key, self._plans[key], rows)
        start = time.perf_counter()
        self._eval(key, seq)
        self._pace.took(len(ids), time.perf_counter() - start)
        self.batch = self._pace.batch
        self._profile.did(self._plans[key], len(ids), self._progress.pos)
        self._progress.pos += len(ids)
        if sample:
            self._progress.collect(self._buffers["out"].data())

    def decode(self, steps: int) -> None:
        """Run up to `steps` steps, several per submit; adapts `chunk` to the time one takes."""
        while steps > 0 and self._progress.reason is StopReason.RUNNING:
            count = min(1 << (steps.bit_length() - 1), MAX_CHUNK) if self._replays else 1
            pos, seen = self._progress.pos, self._progress.seen
            plan = self._short_plan if pos + count <= SHORT else self._decode_plan
            key = ("decode", plan.name, count)
            known = (*key, self._profile.on) in self._sequences
            seq = self._sequence(key, plan, 1, count)
            start = time.perf_counter()
            self._eval(key, seq)
            if known and self._replays:
                self._adapt((time.perf_counter() - start) / count)
            self._progress.collect(self._buffers["out"].data())
            self._profile.did(plan, 1, pos, self._progress.seen - seen)
            steps -= count
        if self.chunk == 1 and MAX_CHUNK > 1 and not self._profile.on:
            self.chunk = 2  # the second submit measures a recorded step

    def _adapt(self, seconds: float) -> None:
        chunk = 1
        while chunk < MAX_CHUNK and chunk * 2 * seconds <= SMOOTH_SECONDS:
            chunk *= 2
        self.chunk = chunk

    def poll(self) -> tuple[list[int], StopReason, int]:
        """Tokens since the last poll, the stop reason, non-finite logits since `begin`."""
        return self._progress.poll()

    def logits(self, ids: Sequence[int], pos: int = 0) -> npt.NDArray[np.float32]:
        """Logits (len(ids), n_vocab) after each id, fed at `pos`. One id takes the decode form."""
        if len(ids) == 1:
            return self._one_logits(ids[0], pos)
        self._buffers.require(self._score_plan)
        rows, n_vocab = self._forward.all_logits.shape
        out = np.empty((len(ids), n_vocab), np.float32)
        seq = self._sequence(("score", rows), self._score_plan, rows)
        for start in range(0, len(ids), rows):
            part = ids[start : start + rows]
            self._set_step(part, pos + start)
            self._eval(("score", rows), seq)
            data = self._buffers["all_logits"].data().view(np.float32).reshape(rows, n_vocab)
            out[start : start + len(part)] = data[: len(part)]
        return out

    def _one_logits(self, token: int, pos: int) -> npt.NDArray[np.float32]:
        self._buffers.require(self._score_plan)
        out, n_vocab = self._buffers["all_logits"], self.spec.n_vocab
        if ("one",) not in self._sequences:
            seq = self.device.sequence()
            self.device.sync_device(seq, [self._buffers["step"], self._buffers["tokens"]])
            self._record(seq, self._forward.decode(), 1)
            self.device.copy(seq, self._buffers["logits"], out, 0, 0, n_vocab)
            self.device.sync_local(seq, [out])
            self._sequences[("one",)] = seq
        self._set_step([token], pos)
        self.device.eval(self._sequences[("one",)])
        logits: npt.NDArray[np.float32] = out.data()[:n_vocab].view(np.float32)[None, :].copy()
        return logits

    # --- the rest ------------------------------------------------------------------------------

    def profile(self, on: bool) -> None:
        """Switch to sequences with a timestamp after every dispatch, or back."""
        self._profile.start(on)

    def phases(self) -> dict[str, float]:
        """Seconds per phase since `profile(True)`."""
        return dict(self._profile.seconds)

    def work(self) -> dict[str, Work]:
        """Work per phase since `profile(True)`."""
        return self._profile.work()

    @property
    def roof_file(self) -> Path:
        """Where `bench --roof` keeps what it measured on this device."""
        return roof_file(self.device.info)

    def replay(self, on: bool) -> None:
        """Replay recorded sequences, or record each one anew, a token at a time."""
        self._replays = on

    def memory(self) -> dict[str, int]:
        """Bytes of weights, KV cache and everything else on the device."""
        return self._buffers.memory()

    def close(self) -> None:
        """Free everything; the device is closed too."""
        self._sequences.clear()
        self.device.close()
