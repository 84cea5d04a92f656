"""The Vulkan executor: plans recorded once into Kompute sequences, replayed for every token.

All that changes from token to token lies in the step buffer on the device, so a recording serves
every position. A decode submit holds several steps; the drawn token is the next step's input
without a visit to the host, and a stop flag turns the steps after the last into no-ops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.sampling_plan import history_dispatch, sampling_dispatches
from . import step
from .ahead import Ahead
from .buffers import Buffers
from .container import Container
from .device import Device
from .forward import Forward
from .next_row import with_row
from .pace import Pace
from .plan import Plan
from .products import plan_options
from .profile import Profile
from .progress import Progress
from .reach import Reach
from .recorder import Algorithms
from .recordings import Recordings
from .roof_store import roof_file
from .sampler import Sampling, settings_words
from .spec import ModelSpec
from .step import StopReason
from .work import Work

SMOOTH_SECONDS = 0.05  # longest submit that still streams smoothly
MAX_CHUNK = 64
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
        sampling, _ = sampling_dispatches(logits, words, tokens, n_ctx)
        self._sampling = with_row(sampling, self._forward.decode(), device.info.bindings)
        self._history = history_dispatch(words, tokens, spec.n_vocab, n_ctx)
        forms = self._forward.forms(self._sampling, self._history)
        reaches = [(reach, forms[f"decode {reach}"]) for reach in opts.reaches]
        self._decode_plans = [*reaches, (n_ctx, forms["decode"])]
        self._score_plan = self._forward.score()
        algorithms = Algorithms(device, Ahead(device))
        for plan in forms.values():
            algorithms.compile(plan)
        weights = self._forward.weights.all
        self._buffers = Buffers(device, algorithms, tuple(forms.values()), weights)
        self._start = self._buffers.starter()
        device.eval(self._start)  # counters between workgroups start from zero
        self._buffers.load(spec.ropes, progress)
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._profile = Profile()
        self._recordings = Recordings(device, algorithms, self._buffers, self._profile)
        self._one: Any = None  # the sequence of `logits` of a single token
        self._progress = Progress(n_ctx, Reach(spec, opts))

    # --- generation ----------------------------------------------------------------------------

    def begin(self, sampling: Sampling, end_ids: Collection[int], limit: int) -> None:
        """Start a generation at position 0 with cleared state."""
        self._progress.begin(sampling, limit)
        settings = settings_words(sampling, end_ids, self.spec.suppressed)
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
        seq = self._recordings.sequence(key, self._plans[key], rows)
        start = time.perf_counter()
        self._recordings.eval(key, seq)
        self._pace.took(len(ids), time.perf_counter() - start)
        self.batch = self._pace.batch
        self._profile.did(self._plans[key], len(ids), self._progress.pos)
        self._progress.pos += len(ids)
        if sample:
            self._progress.collect(self._buffers["out"].data())

    def decode(self, steps: int) -> None:
        """Run up to `steps` steps, several per submit; adapts `chunk` to the time one takes."""
        while steps > 0 and self._progress.reason is StopReason.RUNNING:
            count = min(1 << (steps.bit_length() - 1), MAX_CHUNK) if self._recordings.replays else 1
            pos, seen = self._progress.pos, self._progress.seen
            plan = self._decode_plan(pos + count)
            key = ("decode", plan.name, count)
            known = self._recordings.known(key)
            seq = self._recordings.sequence(key, plan, 1, count)
            start = time.perf_counter()
            self._recordings.eval(key, seq)
            if known and self._recordings.replays:
                self._adapt((time.perf_counter() - start) / count)
            self._progress.collect(self._buffers["out"].data())
            self._profile.did(plan, 1, pos, self._progress.seen - seen)
            steps -= count
        if self.chunk == 1 and MAX_CHUNK > 1 and not self._profile.on:
            self.chunk = 2  # the second submit measures a recorded step

    def _decode_plan(self, positions: int) -> Plan:
        """The plan for a cache of so many entries."""
        return next((p for n, p in self._decode_plans if positions <= n), self._decode_plans[-1][1])

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
        seq = self._recordings.sequence(("score", rows), self._score_plan, rows)
        for start in range(0, len(ids), rows):
            part = ids[start : start + rows]
            self._set_step(part, pos + start)
            self._recordings.eval(("score", rows), seq)
            data = self._buffers["all_logits"].data().view(np.float32).reshape(rows, n_vocab)
            out[start : start + len(part)] = data[: len(part)]
        return out

    def _one_logits(self, token: int, pos: int) -> npt.NDArray[np.float32]:
        self._buffers.require(self._score_plan)
        out, n_vocab = self._buffers["all_logits"], self.spec.n_vocab
        if self._one is None:
            self._one = self.device.sequence()
            self.device.sync_device(self._one, [self._buffers["step"], self._buffers["tokens"]])
            self._recordings.record(self._one, self._forward.decode(), 1)
            self.device.copy(self._one, self._buffers["logits"], out, 0, 0, n_vocab)
            self.device.sync_local(self._one, [out])
        self._set_step([token], pos)
        self.device.eval(self._one)
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
        self._recordings.replays = on

    def memory(self) -> dict[str, int]:
        """Bytes of weights, KV cache and everything else on the device."""
        return self._buffers.memory()

    def close(self) -> None:
        """Free everything; the device is closed too."""
        self._recordings.clear()
        self._one = None
        self.device.close()
