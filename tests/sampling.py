"""Helpers of the sampling tests: exact probabilities, and draws one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kompute_llm.engine import sampler, step
from kompute_llm.engine.device import Device
from kompute_llm.engine.plan import Buf, Dispatch
from kompute_llm.engine.recorder import Algorithms, Hazards
from kompute_llm.engine.sampler import Sampling, settings_words
from kompute_llm.engine.step import StopReason
from kompute_llm.kernels.sampling_plan import history_dispatch, sampling_dispatches

Floats = npt.NDArray[np.float32]
BATCH = 64


def exact_probabilities(logits: Floats, s: Sampling) -> npt.NDArray[np.float64]:
    """What the options mean, in float64 and by a full sort: top-k, top-p, min-p, temperature."""
    order = np.argsort(-logits.astype(np.float64), kind="stable")
    x = logits[order].astype(np.float64)
    keep = np.arange(x.size) < (s.top_k if s.top_k > 0 else x.size)
    p = np.where(keep, np.exp(x - x[0]), 0)
    p /= p.sum()
    if s.top_p < 1:
        keep &= np.cumsum(p) - p < max(s.top_p, 1e-9)
    keep &= p >= s.min_p * p[0]
    q = np.where(keep, np.exp((x - x[0]) / s.temp), 0)
    out = np.zeros(x.size)
    out[order] = q / q.sum()
    return out


class Chain:
    """A generation over given logits: by the references, or on a device when there is one."""

    def __init__(
        self, n_vocab: int, n_ctx: int, options: Sampling, end_ids: Sequence[int] = (),
        limit: int = 1 << 30, device: Device | None = None, suppressed: Sequence[int] = (),
    ) -> None:
        self._step = Buf("step", (step.WORDS,), "U32")
        self._tokens = Buf("tokens", (BATCH,), "U32")
        logits = Buf("logits", (1, n_vocab))
        self._draws, bufs = sampling_dispatches(logits, self._step, self._tokens, n_ctx)
        self._history = history_dispatch(self._step, self._tokens, n_vocab, n_ctx)
        self.arrays: dict[str, npt.NDArray[Any]] = {
            b.name: np.zeros(b.shape, np.float32 if b.dtype == "F32" else np.uint32)
            for b in (*bufs, self._step, self._tokens, logits)
        }
        self.arrays["settings"][:] = settings_words(options, end_ids, suppressed)
        words = self.arrays["step"]
        words[step.LIMIT] = limit
        words[[step.SEED_LO, step.SEED_HI]] = sampler.seed_words(options.seed or 0)
        self._device = device
        if device is not None:
            self._algorithms = Algorithms(device)
            self._tensors = {n: device.exchange(a.size, n) for n, a in self.arrays.items()}

    @property
    def reason(self) -> StopReason:
        """Why generation ended, or RUNNING."""
        return StopReason(int(self.arrays["step"][step.STOP]))

    def _run(self, dispatches: Sequence[Dispatch], rows: int) -> None:
        if self._device is not None:
            self._run_on(self._device, dispatches, rows)
            return
        for d in dispatches:
            operands = {n: self.arrays[op.name] for n, op in d.operands.items()}
            d.kernel.reference(**operands, **d.params)

    def _run_on(self, device: Device, dispatches: Sequence[Dispatch], rows: int) -> None:
        tensors = self._tensors
        for name, array in self.arrays.items():
            tensors[name].data()[: array.size] = array.reshape(-1).view(np.uint32)
        seq, hazards = device.sequence(), Hazards()
        device.sync_device(seq, list(tensors.values()))
        for d in dispatches:
            bound = {n: tensors[op.name] for n, op in d.operands.items()}
            self._algorithms.record(
                seq, d.kernel, bound, d.operands, d.params, rows, independent=hazards.admit(d)
            )
        device.sync_local(seq, list(tensors.values()))
        device.eval(seq)
        for name, array in self.arrays.items():
            array.reshape(-1).view(np.uint32)[:] = tensors[name].data()[: array.size]

    def prompt(self, ids: Sequence[int]) -> None:
        """Feed up to BATCH ids."""
        words = self.arrays["step"]
        words[step.POS] += words[step.N]
        words[step.N] = len(ids)
        self.arrays["tokens"][: len(ids)] = ids
        self._run([self._history], len(ids))

    def draw(self, logits: Floats, count: int) -> list[int]:
        """Draw up to `count` ids from the same logits; on a device, up to 50 in one sequence."""
        self.arrays["logits"][0] = logits
        words, ids = self.arrays["step"], list[int]()
        while count > 0:
            before, part = int(words[step.COUNT]), min(count, 50)
            self._run([*self._draws] * part, 1)
            drawn = int(words[step.COUNT]) - before
            ring = [step.WORDS + i % step.RING for i in range(before, before + drawn)]
            ids += self.arrays["out"][ring].tolist()
            assert (self.arrays["out"][: step.WORDS] == words).all()
            count -= part
        return ids
