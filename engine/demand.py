"""Which path a model would take on kinds of devices, and how much memory that needs.

No device is asked: the kinds are limits as GPUs of that kind have them, and the sizes are those
of the buffers that the plans name, just as the executors allocate them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ..kernels.limits import Limits
from ..kernels.sampling_plan import history_dispatch, sampling_dispatches
from .buffers import EXCHANGED
from .container import Container
from .errors import KomputeLLMError
from .forward import Forward, PlanOptions
from .int_matrix import RowsMatrix
from .layout import weight_words
from .plan import Buf, Role
from .products import plan_options
from .runner import RunnerConfig
from .spec import ModelSpec
from .upload import STAGING_BYTES

if TYPE_CHECKING:
    from .device import Device

# A middling GPU: what differs between the kinds is said by their names.
_GPU = Limits(
    workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=32768,
    storage_range=(1 << 32) - 1, allocation=(1 << 32) - 1, subgroup_size=32, subgroup_min=32,
    subgroup_max=32, subgroup_count=32, subgroup_arithmetic=True, full_subgroups=True,
    float16=True, storage16=True, int8=True,
)  # fmt: skip
KINDS: dict[str, Limits | None] = {
    "CPU": None,
    "any GPU": _GPU,
    "GPU with int8 dot": _GPU.with_(int_dot=True),
    "... and matrix cores": _GPU.with_(int_dot=True, coopmat=True),
}


@dataclass(frozen=True)
class Demand:
    """Bytes on the device and in host memory; on the CPU there is only the host.

    `mapped` is the part of the host's that is the mapped file, which can be dropped and read
    again. `path` names the factors of products; `problem` says why the kind of device cannot run
    the model.
    """

    kind: str
    path: str = ""
    weights: int = 0
    cache: int = 0
    scratch: int = 0
    host: int = 0
    mapped: int = 0
    problem: str = ""

    @property
    def device(self) -> int:
        """All bytes on the device."""
        return self.weights + self.cache + self.scratch


def demands(container: Container, spec: ModelSpec, config: RunnerConfig) -> list[Demand]:
    """What each kind of device would need for `config.n_ctx` positions and its cache types."""
    found = []
    for kind, limits in KINDS.items():
        try:
            make = _on_cpu(container, spec, config) if limits is None else _on_gpu(
                container, spec, config, limits)  # fmt: skip
            found.append(Demand(kind, **make))
        except KomputeLLMError as e:
            found.append(Demand(kind, problem=str(e)))
    return found


def _on_cpu(container: Container, spec: ModelSpec, config: RunnerConfig) -> dict[str, Any]:
    batch = min(config.batch, config.n_ctx)
    opts = PlanOptions(config.n_ctx, batch, config.cache_k.upper(), config.cache_v.upper())
    forward, bufs = _plans(container, spec, opts, score=True)
    parts = [m for w in forward.weights.all for m in w.parts]
    mapped = sum(m.nbytes for m in parts if not isinstance(m, RowsMatrix))
    packed = sum(m.nbytes for m in parts) - mapped  # int containers: made in memory
    size = sum(4 * b.words for b in bufs)
    return {"path": "f32", "host": mapped + packed + size, "mapped": mapped}


def _on_gpu(
    container: Container, spec: ModelSpec, config: RunnerConfig, limits: Limits
) -> dict[str, Any]:
    info = SimpleNamespace(name="this kind of GPU", int_dot="none", type="discrete")
    device = cast("Device", SimpleNamespace(limits=limits, info=info))
    caches = config.cache_k, config.cache_v
    products, opts = plan_options(
        container, spec, device, config.n_ctx, config.batch, caches, config.math
    )
    forward, bufs = _plans(container, spec, opts)
    shared = [b for b in bufs if b.role in (Role.INPUT, Role.OUTPUT) or b.name in EXCHANGED]
    return {
        "path": products.describe.replace(" products", ""),
        "weights": sum(4 * sum(weight_words(w)) for w in forward.weights.all),
        "cache": sum(4 * b.words for b in bufs if b.role is Role.CACHE),
        "scratch": sum(4 * b.words for b in bufs if b.role is not Role.CACHE),
        "host": STAGING_BYTES + sum(4 * b.words for b in shared),
    }


def _plans(
    container: Container, spec: ModelSpec, opts: PlanOptions, score: bool = False
) -> tuple[Forward, Sequence[Buf]]:
    """The plans of a generation (and of scoring) and every buffer that they name, once each."""
    f = Forward(container, spec, opts)
    sampling, _ = sampling_dispatches(f.logits, f.step, f.tokens, opts.n_ctx)
    history = history_dispatch(f.step, f.tokens, spec.n_vocab, opts.n_ctx)
    plans = [*f.forms(sampling, history).values(), *([f.score()] if score else [])]
    named = {
        op.name: op
        for plan in plans for d in plan.dispatches for op in d.operands.values()
        if isinstance(op, Buf)
    }  # fmt: skip
    return f, list(named.values())
