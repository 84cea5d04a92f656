"""Time of decode attention: python tests/perf_attention.py [DEVICE] [--small] [--sweep].

32 query heads over 8 key/value heads of 128 values, contexts of 128 to 65536 positions, float16,
Q8_0 and Q4_0 caches: attention_q8 (position by position) and attention_tiles_q8 (as a model takes
it), each call waiting for the one before it, over distinct rows in turn so that they come from
memory. Prints microseconds of a call and the floor: bytes of the rows at the device's measured
bandwidth. --sweep: the tile kernel in other workgroups and splits instead, from 4096 positions on.
--small: short contexts, few calls. No test: it needs a quiet machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perf_bench import Bench

from kompute_llm.engine.builder_base import SHORT
from kompute_llm.engine.device import Device, choose
from kompute_llm.engine.plan import Buf
from kompute_llm.engine.products import choose_splits
from kompute_llm.engine.recorder import push_words
from kompute_llm.engine.roof import measure
from kompute_llm.kernels import attention_q8, attention_tiles_q8, cache_rows
from kompute_llm.kernels.kernel import Kernel, Launch
from kompute_llm.kernels.reference import step_words

HEADS, KV, DIM = 32, 8, 128
KINDS = ("F16", "Q8_0", "Q4_0")
CONTEXTS, CALLS, COLD = (128, 4096, 16384, 65536), 64, 128 << 20
SMALL = "--small" in sys.argv
SWEEP_SIZES, SWEEP_HEADS = (128, 256, 512, 1024), (1, 4)


class Layer:
    """Caches of one type and length, several times in one buffer, and what attention writes."""

    def __init__(self, b: Bench, kind: str, length: int) -> None:
        self.b, self.kind, self.length = b, kind, length
        self.words = length * cache_rows.row_bytes(kind, KV * DIM) // 4
        self.copies = 1 if SMALL else max(1, -(-COLD // (8 * self.words)))
        bound = attention_q8.MAX_SPLITS * HEADS * (DIM + 2)
        self.tensors = {
            "qkv": b.storage((HEADS + 2 * KV) * DIM), "part": b.storage(bound),
            "k": b.storage(self.copies * self.words), "v": b.storage(self.copies * self.words),
            "arrived": b.exchange([0] * HEADS), "yq": b.storage(HEADS * DIM // 4),
            "ys": b.storage(HEADS * DIM // 8), "step": b.exchange(step_words(1, length - 1)),
        }  # fmt: skip
        cache = Buf("cache", (length, KV * DIM), kind)
        self.shapes = {"k": cache, "v": cache}

    @property
    def nbytes(self) -> int:
        """Bytes of rows that a call reads."""
        return 8 * self.words

    @property
    def calls(self) -> int:
        """Calls in one submit: every copy at least once."""
        return 4 if SMALL else max(CALLS, self.copies) if self.length <= 16384 else 16

    def params(self, kernel: Kernel, heads: int, splits: int) -> dict[str, int | float]:
        """Those of a model's layer; `heads` of a workgroup, for tiles."""
        found: dict[str, int | float] = {
            "n_head": HEADS, "n_head_kv": KV, "head_dim": DIM, "splits": splits,
            "scale": DIM**-0.5, "window": 0, "softcap": 0.0,
        }  # fmt: skip
        return found | ({"heads": heads} if kernel is attention_tiles_q8.KERNEL else {})

    def launch(self, kernel: Kernel, heads: int, splits: int) -> Launch:
        """What a model would run."""
        limits = self.b.device.limits
        return kernel.launch(self.shapes, self.params(kernel, heads, splits), 1, limits)

    def record(self, kernel: Kernel, launch: Launch, heads: int, splits: int) -> Any:
        """A sequence of all calls."""
        device, params = self.b.device, self.params(kernel, heads, splits)
        bound = [self.tensors[binding.name] for binding in kernel.interface.bindings]
        algorithm, seq = self.b.algorithms.get(kernel, launch, bound), device.sequence()
        for i in range(self.calls):
            base = i % self.copies * self.words
            push = push_words(kernel, params | {"k_base": base, "v_base": base})
            device.record(seq, algorithm, push, launch.grid)
        return seq


def usual(length: int) -> int:
    """Heads of a workgroup that a model takes."""
    return 1 if length <= SHORT else HEADS // KV


def compare(b: Bench, kinds: Sequence[str], length: int) -> None:
    """Both kernels over each type, in turn."""
    splits, kernels = choose_splits(b.device.limits.units, KV), (attention_q8, attention_tiles_q8)
    layers = [Layer(b, kind, length) for kind in kinds]
    heads = usual(length)
    sequences = [
        layer.record(m.KERNEL, layer.launch(m.KERNEL, heads, splits), heads, splits)
        for layer in layers for m in kernels
    ]  # fmt: skip
    times = iter(b.turns(sequences))
    for layer in layers:
        for m in kernels:
            name = f"{m.KERNEL.name:18} {layer.kind:4} T = {length}"
            b.say(name, next(times) / layer.calls, layer.nbytes, "call")


def sweep(b: Bench, kind: str, length: int) -> None:
    """Workgroups, their heads and splits of the tile kernel; tiles as long as they fit."""
    layer, limits, kernel = Layer(b, kind, length), b.device.limits, attention_tiles_q8.KERNEL
    most, named, sequences = choose_splits(limits.units, KV), [], []
    for heads in SWEEP_HEADS:
        for size in SWEEP_SIZES:
            found = attention_tiles_q8.tiling(heads, DIM, limits, kind, kind, size)
            if size > limits.most or found[0] != size:
                continue
            for splits in sorted({max(1, most // 2), most, min(64, 2 * most)}):
                launch = layer.launch(kernel, heads, splits)
                spec = (size, *launch.spec[1:6], found[1], *launch.spec[7:])
                named.append(f"{kind} T = {length}, {heads} heads of {size}, {splits} splits")
                sequences.append(layer.record(kernel, replace(launch, spec=spec), heads, splits))
    for name, took in zip(named, b.turns(sequences), strict=True):
        b.say(name, took / layer.calls, layer.nbytes, "call")


def main() -> None:
    """One table."""
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    contexts = (128, 700) if SMALL else CONTEXTS
    with Device.open(choose(names[0] if names else None)) as device:
        roof, _ = measure(device, lambda text: None)
        print(f"{device.describe}: reads {roof.read / 1e9:.0f} GB/s")
        b = Bench(device, roof.read, 1)
        for length in contexts:
            if "--sweep" not in sys.argv:
                compare(b, KINDS, length)
            elif length > SHORT:
                for kind in KINDS:
                    sweep(b, kind, length)


if __name__ == "__main__":
    main()
