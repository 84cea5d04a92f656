"""Weights brought into the device's cache while short attention leaves its memory idle.

Attention over few positions takes a workgroup a head and hardly any bytes; the products after it
are so small in narrow models that the way of their first loads is what they take. A dispatch
beside attention reads their weights, and they find them in the cache. By measurements on an H200
(docs/performance.md) this pays where a good part of the next product fits into `BUDGET`, which
caches of discrete GPUs can spare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..kernels import attention_out_q8, attention_short_q8, prefetch
from .layout import weight_words
from .plan import Buf, Dispatch, Role, Weight

BUDGET = 3 << 20  # bytes beside one attention
PART = 0.5  # of the next weight that has to fit, or nothing is read
LEAST = 1 << 16  # bytes of a weight that is worth a dispatch
AHEAD = 4  # dispatches that are looked at
SINK = Buf("prefetched", (4,), "U32", Role.STATE)
BESIDE = (attention_short_q8.KERNEL, attention_out_q8.KERNEL)


def prefetched(dispatches: Sequence[Dispatch], step: Buf) -> Iterator[Dispatch]:
    """The dispatches, and beside each short attention one that reads weights of the next."""
    for i, d in enumerate(dispatches):
        yield d
        if d.kernel in BESIDE:
            yield from _beside(d, dispatches[i + 1 : i + 1 + AHEAD], step)


def _beside(attention: Dispatch, later: Sequence[Dispatch], step: Buf) -> Iterator[Dispatch]:
    weights = [w for d in later for w in d.operands.values() if isinstance(w, Weight)]
    weights = [w for w in weights if _size(w) >= LEAST][: len(prefetch.NAMES)]
    left, counts = BUDGET, []
    if not weights or _size(weights[0]) * PART > left:
        return
    for w in weights:
        counts.append(min(_size(w), left))
        left -= counts[-1]
    missing = len(prefetch.NAMES) - len(weights)
    operands = dict(zip(prefetch.NAMES, weights + weights[:1] * missing, strict=True))
    params = dict(zip(prefetch.NAMES, counts + [0] * missing, strict=True))
    # nobody reads the sink
    yield Dispatch(
        prefetch.KERNEL, {**operands, "sink": SINK, "step": step},
        {f"{name}_count": size // 4 for name, size in params.items()}, attention.phase,
        "|".join(w.name for w in weights) + " ahead",
    )  # fmt: skip


def _size(w: Weight) -> int:
    return 4 * sum(weight_words(w))
