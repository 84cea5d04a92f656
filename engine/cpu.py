"""The CPU executor: the same plans, run by compiled kernels or, on request, by the references.

Consecutive dispatches that have a compiled form become one program, which a team of threads
replays without the interpreter (cpu_team.py); the others, and all in reference mode, are calls of
their NumPy references. Weights are read where the file is mapped; nothing is copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..kernels import fast
from ..kernels.sampling_plan import history_dispatch, sampling_dispatches
from . import step
from .container import Container
from .cpu_cores import available_cores
from .cpu_plan import Compiled, Storage
from .cpu_team import Team
from .errors import UsageError
from .forward import Forward, PlanOptions
from .plan import Plan, Role
from .profile import Profile
from .progress import Progress
from .reach import Reach
from .roof_store import cpu_roof_file
from .rope import rope_name, rope_table
from .runner import Notify, unheard
from .sampler import Sampling, settings_words
from .spec import ModelSpec
from .step import StopReason
from .work import Work

SMOOTH_SECONDS = 0.05  # longest call of `decode` that still streams smoothly
MAX_CHUNK = 16
MAX_SPLITS = 16
BATCH = 512
TOUCH = 16 << 20  # bytes of weights read between two reports of progress
PAGE = 4096
COMPILING = "compiling kernels for this processor: about 10 s, once for every format of weights"


def choose_splits(threads: int, n_head_kv: int) -> int:
    """Context splits of decode attention: about four pieces of work per thread."""
    splits = 1
    while splits < MAX_SPLITS and splits * n_head_kv < 4 * threads:
        splits *= 2
    return splits


class CpuRunner:
    """One model on the CPU. See engine/runner.py for what callers may expect.

    `reference=True` runs every dispatch through its NumPy reference. Interrupted calls
    (KeyboardInterrupt) leave the state as after the last complete step.
    """

    def __init__(
        self, container: Container, spec: ModelSpec, n_ctx: int, *,
        cache_k: str = "f16", cache_v: str = "f16", math: str = "auto",
        batch: int = BATCH, threads: int | None = None, reference: bool = False,
        progress: Callable[[int, int], None] | None = None, notify: Notify = unheard,
    ) -> None:  # fmt: skip
        if math not in ("auto", "f32"):
            raise UsageError(f"--math {math}: the CPU computes products in f32 only")
        self.spec, self.n_ctx = spec, n_ctx
        self.batch, self.chunk = min(batch, n_ctx), 1
        self._threads = count = threads or available_cores()
        kind = "references" if reference else f"{count} thread{'s' if count > 1 else ''}"
        self.describe = f"CPU ({kind}, f32 products, {cache_k} keys, {cache_v} values)"
        self._team = None if reference else Team(count)
        if not reference:
            fast.on_compile(lambda: notify(COMPILING))
        self._storage = Storage()
        self._forward = self._prepare(container, cache_k, cache_v, count)
        self._compile()
        self._touch(progress)
        self._profile = Profile()
        self._progress = Progress(n_ctx, Reach(spec, self._forward.opts))

    # --- plans and memory ----------------------------------------------------------------------

    def _prepare(self, container: Container, cache_k: str, cache_v: str, threads: int) -> Forward:
        splits = choose_splits(threads, self.spec.n_head_kv)
        opts = PlanOptions(self.n_ctx, self.batch, cache_k.upper(), cache_v.upper(), splits)
        return Forward(container, self.spec, opts)

    def _compile(self) -> None:
        f = self._forward
        sampling, _ = sampling_dispatches(f.logits, f.step, f.tokens, self.n_ctx)
        history = history_dispatch(f.step, f.tokens, self.spec.n_vocab, self.n_ctx)
        self._decode = self._bind(f.decode(sampling))
        self._prompt = self._bind(f.prefill(self.batch, (history, *sampling), head=True))
        self._feed = self._bind(f.prefill(self.batch, (history,)))
        self._score = self._bind(f.score())
        for i, rope in enumerate(self.spec.ropes):
            if (name := rope_name(i)) in self._storage.arrays:
                self._storage.arrays[name][...] = rope_table(rope.within(self.n_ctx), self.n_ctx)

    def _bind(self, plan: Plan) -> Compiled:
        self._storage.allocate(plan)
        return Compiled(plan, self._storage.arrays, self._team)

    def _touch(self, progress: Callable[[int, int], None] | None) -> None:
        """Read every page of the weights once, so that the first token does not wait for them."""
        matrices = {id(m): m.raw for w in self._forward.weights.all for m in w.parts}
        total, done = sum(raw.nbytes for raw in matrices.values()), 0
        for raw in matrices.values():
            flat = raw.reshape(-1)
            for start in range(0, flat.size, TOUCH):
                flat[start : start + TOUCH : PAGE].max()
                done += min(TOUCH, flat.size - start)
                if progress:
                    progress(done, total)
        self._weight_bytes = total

    # --- generation ----------------------------------------------------------------------------

    def begin(self, sampling: Sampling, end_ids: Collection[int], limit: int) -> None:
        """Start a generation at position 0 with cleared state."""
        settings = settings_words(sampling, end_ids, self.spec.suppressed)
        self._progress.begin(sampling, limit)
        self._storage.clear(Role.STATE)
        self._storage.arrays["settings"][: settings.size] = settings

    def _set_step(self, ids: Sequence[int], pos: int) -> None:
        self._storage.arrays["step"][:] = self._progress.words(ids, pos)
        self._storage.arrays["tokens"][: len(ids)] = np.asarray(ids, np.uint32)

    def prefill(self, ids: Sequence[int], *, sample: bool) -> None:
        """Append ids at the current position; with `sample`, draw the token after them."""
        self._set_step(ids, self._progress.pos)
        plan = self._prompt if sample else self._feed
        self._run(plan)
        self._profile.did(plan.plan, len(ids), self._progress.pos)
        self._progress.pos += len(ids)
        if sample:
            self._progress.collect(self._storage.arrays["out"])

    def decode(self, steps: int) -> None:
        """Run up to `steps` steps; adapts `chunk` to the time that one takes."""
        start, before, pos = time.perf_counter(), self._progress.seen, self._progress.pos
        try:
            for _ in range(steps):
                if self._storage.arrays["step"][step.STOP]:
                    break
                self._run(self._decode)
        finally:
            self._progress.collect(self._storage.arrays["out"])
        self._profile.did(self._decode.plan, 1, pos, self._progress.seen - before)
        if self._progress.seen > before:
            seconds = (time.perf_counter() - start) / (self._progress.seen - before)
            self.chunk = max(1, min(MAX_CHUNK, int(SMOOTH_SECONDS / seconds)))

    def poll(self) -> tuple[list[int], StopReason, int]:
        """Tokens since the last poll, the stop reason, non-finite logits since `begin`."""
        return self._progress.poll()

    def logits(self, ids: Sequence[int], pos: int = 0) -> npt.NDArray[np.float32]:
        """Logits (len(ids), n_vocab) after each id, fed at `pos`."""
        rows, n_vocab = self._forward.all_logits.shape
        out = np.empty((len(ids), n_vocab), np.float32)
        for start in range(0, len(ids), rows):
            part = ids[start : start + rows]
            self._set_step(part, pos + start)
            self._run(self._score)
            out[start : start + len(part)] = self._storage.arrays["all_logits"][: len(part)]
        return out

    def _run(self, plan: Compiled) -> None:
        start = time.perf_counter()
        spent = plan.run(self._profile.on)
        if self._profile.on:
            self._profile.took(spent, time.perf_counter() - start)

    # --- the rest ------------------------------------------------------------------------------

    def profile(self, on: bool) -> None:
        """Start (clearing what was measured) or stop measuring time per phase."""
        self._profile.start(on)

    def phases(self) -> dict[str, float]:
        """Seconds per phase since `profile(True)`."""
        return dict(self._profile.seconds)

    def work(self) -> dict[str, Work]:
        """Work per phase since `profile(True)`."""
        return self._profile.work()

    @property
    def roof_file(self) -> Path:
        """Where `bench --roof` keeps what it measured with as many threads."""
        return cpu_roof_file(self._threads)

    def replay(self, on: bool) -> None:
        """Raises UsageError to do without: the executor records nothing."""
        if not on:
            raise UsageError("--record each: the CPU executor records nothing, so there is no "
                             "recording to do without")

    def memory(self) -> dict[str, int]:
        """Bytes of mapped weights, KV cache and everything else."""
        kv, rest = self._storage.bytes(Role.CACHE), self._storage.bytes()
        plans = (self._decode, self._prompt, self._feed, self._score)
        scratch = sum(p.scratch_bytes for p in plans)
        return {"weights": self._weight_bytes, "kv": kv, "scratch": rest - kv + scratch}

    def close(self) -> None:
        """End the threads and free the memory; waits for running work."""
        if self._team:
            self._team.close()
        self._storage.arrays.clear()

