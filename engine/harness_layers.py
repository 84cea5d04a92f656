"""The residual stream behind every layer of a model, by the forms in which its plans can run.

Forms differ in products (float32, int8, float16), in how many tokens go through at once, and in how
dispatches are issued: recorded in one sequence with the barriers that the hazards ask for, or each
submitted alone and waited for, which is the strictest order there is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels import fill
from . import step
from .buffers import Buffers
from .container import Container
from .device import Device
from .forward import Forward
from .plan import Plan, Role
from .products import Products, plan_options
from .recorder import Algorithms, Hazards, Prepared, offsets
from .spec import ModelSpec

Floats = npt.NDArray[np.float32]
STREAM = "x"  # the buffer of the residual stream in every family (arch/*.py)
_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True)
class Trace:
    """`layers` (layers, tokens, n_embd) behind every layer, `logits` (tokens, n_vocab)."""

    layers: Floats
    logits: Floats


def layers_of(plan: Plan) -> list[int]:
    """The layer of each dispatch; -1 before the first one, and `n` behind the last of n."""
    found, current = [], -1
    for d in plan.dispatches:
        match = _LAYER.match(d.label)
        current = max(int(match[1]), current) if match else current
        found.append(current)
    last = max(i for i, d in enumerate(plan.dispatches) if _LAYER.match(d.label))
    return [layer if i <= last else current + 1 for i, layer in enumerate(found)]


class Traces:
    """One model on a device in one kind of products."""

    def __init__(
        self, container: Container, spec: ModelSpec, device: Device, *, n_ctx: int, tokens: int,
        caches: tuple[str, str], math: str, progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.spec, self.device, self.tokens = spec, device, tokens
        self.products, opts = plan_options(container, spec, device, n_ctx, tokens, caches, math)
        forward = Forward(container, spec, opts)
        self._token, self._batch = forward.decode(), forward.prefill(opts.batch, head=True)
        self._algorithms = Algorithms(device)
        plans = (self._token, self._batch)
        self._buffers = Buffers(device, self._algorithms, plans, forward.weights.all)
        self._buffers.load(spec.ropes, progress)
        self._kept = device.exchange(spec.n_layer * tokens * spec.n_embd, "residual streams")
        self._logits = device.exchange(spec.n_vocab, "logits of a trace")

    # --- one step ------------------------------------------------------------------------------

    def _clear(self) -> None:
        """State of earlier runs; what the host writes is written anyway."""
        seq = self.device.sequence()
        for b in self._buffers.bufs.values():
            if b.role is Role.STATE and b.name not in ("step", "tokens"):
                params = {"word": 0, "count": b.words, "value": 0}
                dst = {"dst": self._buffers[b.name]}
                self._algorithms.record(seq, fill.KERNEL, dst, {}, params, 1)
        if seq.records:
            self.device.eval(seq)

    def _set(self, ids: Sequence[int], pos: int) -> None:
        words = np.zeros(step.WORDS, np.uint32)
        words[[step.N, step.POS, step.LIMIT]] = len(ids), pos, 0xFFFFFFFF
        self._buffers["step"].data()[: step.WORDS] = words
        self._buffers["tokens"].data()[: len(ids)] = np.asarray(ids, np.uint32)

    def _prepared(self, plan: Plan, whole: bool) -> list[Prepared]:
        """Dispatches; `whole`: with the barriers of a recorded plan, else with all of them."""
        hazards = Hazards()
        return [
            self._algorithms.prepare(
                d.kernel, {n: self._buffers.tensor(op) for n, op in d.operands.items()},
                d.operands, offsets(d, self._buffers.places), plan.rows,
                whole and hazards.admit(d),
            )
            for d in plan.dispatches
        ]  # fmt: skip

    def _keep(self, seq: Any, layer: int, tokens: int) -> None:
        words = tokens * self.spec.n_embd
        self.device.copy(seq, self._buffers[STREAM], self._kept, 0, layer * words, words)

    def _upload(self, seq: Any) -> None:
        self.device.sync_device(seq, [self._buffers["step"], self._buffers["tokens"]])

    def _finish(self, seq: Any) -> None:
        self.device.copy(seq, self._buffers["logits"], self._logits, 0, 0, self.spec.n_vocab)
        self.device.sync_local(seq, [self._kept, self._logits])

    def _recorded(self, plan: Plan, tokens: int, keep: bool) -> Any:
        """One sequence; `keep`: with the streams copied between layers."""
        seq, layers = self.device.sequence(), layers_of(plan)
        self._upload(seq)
        for i, prepared in enumerate(self._prepared(plan, whole=True)):
            prepared.record(self.device, seq)
            done = i + 1 == len(layers) or layers[i + 1] > layers[i] >= 0
            if keep and done and layers[i] < self.spec.n_layer:
                self._keep(seq, layers[i], tokens)
        self._finish(seq)
        return seq

    def _apart(self, plan: Plan, tokens: int) -> list[Any]:
        """A sequence for each dispatch, and for each copy."""
        found, layers = [self.device.sequence()], layers_of(plan)
        self._upload(found[0])
        for i, prepared in enumerate(self._prepared(plan, whole=False)):
            found.append(self.device.sequence())
            prepared.record(self.device, found[-1])
            done = i + 1 == len(layers) or layers[i + 1] > layers[i] >= 0
            if done and layers[i] < self.spec.n_layer:
                found.append(self.device.sequence())
                self._keep(found[-1], layers[i], tokens)
        found.append(self.device.sequence())
        self._finish(found[-1])
        return found

    # --- traces --------------------------------------------------------------------------------

    def _read(self, tokens: int) -> tuple[Floats, Floats]:
        n, width = self.spec.n_layer, self.spec.n_embd
        streams = self._kept.data()[: n * tokens * width].view(np.float32)
        logits = self._logits.data()[: self.spec.n_vocab].view(np.float32)
        return streams.reshape(n, tokens, width).copy(), logits.copy()

    def one_by_one(self, ids: Sequence[int], apart: bool = False, keep: bool = True) -> Trace:
        """Single tokens from position 0 on; `apart`: every dispatch submitted alone.

        Without `keep` nothing stands between the dispatches of a step; `layers` is of no meaning.
        """
        self._clear()
        plan = self._token
        sequences = self._apart(plan, 1) if apart else [self._recorded(plan, 1, keep)]
        streams, logits = [], []
        for pos, token in enumerate(ids):
            self._set([token], pos)
            for seq in sequences:
                self.device.eval(seq)
            x, y = self._read(1)
            streams.append(x)
            logits.append(y)
        return Trace(np.concatenate(streams, axis=1), np.stack(logits))

    def at_once(self, ids: Sequence[int]) -> Trace:
        """All tokens as one batch; logits of the last one."""
        self._clear()
        self._set(ids, 0)
        self.device.eval(self._recorded(self._batch, len(ids), keep=True))
        streams, logits = self._read(len(ids))
        return Trace(streams, logits[None])


def divergence(got: Floats, want: Floats) -> float:
    """The worst row's NMSE of (rows, n); infinite where a value is not finite."""
    if not (np.isfinite(got).all() and np.isfinite(want).all()):
        return float("inf")
    error = np.square(got.astype(np.float64) - want).sum(axis=-1)
    power = np.square(want.astype(np.float64)).sum(axis=-1)
    return float((error / np.maximum(power, 1e-300)).max())


def different(got: Floats, want: Floats) -> int:
    """How many values are not the same bit by bit."""
    return int(np.count_nonzero(got.view(np.uint32) != want.view(np.uint32)))


__all__ = ["Products", "Trace", "Traces", "different", "divergence", "layers_of"]
