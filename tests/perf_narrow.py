"""A narrow layer in three dispatches and in five: python tests/perf_narrow.py [DEVICE] [--sweep]

Sizes of SmolLM2-135M in Q4_1. Prints microseconds a layer of chains of dispatches that wait for
each other, over the weights of 30 layers in turn, at two lengths of context: the layer in either
form, then each kernel alone. --sweep: tilings (perf_narrow_sweep.py). No test: it needs a quiet
machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import perf_narrow_sweep
from perf_bench import Bench, Operand, Step

from kompute_llm.engine.device import Device, choose
from kompute_llm.engine.plan import Buf
from kompute_llm.kernels import (
    attention_out_q8,
    attention_short_q8,
    matvec_q8_add,
    narrow,
    norm_matvec_q8_swiglu,
    prefetch,
    qkv_rope_q8,
    sum_ffn_q8,
    sum_q8,
    sum_qkv_rope_q8,
)

REPEATS, EPS, FORMAT = 3, 1e-5, "Q4_1"
Record = Callable[[Any, int], None]  # records a kernel of layer i


@dataclass(frozen=True)
class Sizes:
    """Of the layer."""

    width: int = 576
    heads: int = 9
    kv_heads: int = 3
    dim: int = 64
    n_ff: int = 1536

    @property
    def q_dim(self) -> int:
        """Values of all queries."""
        return self.heads * self.dim

    @property
    def kv_dim(self) -> int:
        """Values of all keys."""
        return self.kv_heads * self.dim

    @property
    def qkv(self) -> int:
        """Values of queries, keys and values."""
        return self.q_dim + 2 * self.kv_dim


class Layer:
    """Buffers of layers of one size."""

    def __init__(self, b: Bench, s: Sizes, positions: int, layers: int) -> None:
        self.b, self.s, self.layers = b, s, layers
        vectors = {"x": s.width, "att": s.q_dim, "ffn": s.n_ff}
        self.v = {name: b.vector(n) for name, n in vectors.items()}
        self.y, self.rope = self.floats(1, s.qkv), self.floats(positions, s.dim)
        self.heads = self.floats(1 + s.heads, s.width)
        self.slices = self.floats(1 + s.n_ff // 32, s.width)
        cache = Buf("k", (positions, s.kv_dim), "F16")
        words = positions * s.kv_dim // 2
        self.caches = [(b.storage(words), cache) for _ in range(2 * layers)]
        self.w = [self.weights() for _ in range(layers)]
        self.sink = b.storage(4)

    def floats(self, rows: int, cols: int) -> Operand:
        """A float32 buffer."""
        return self.b.storage(rows * cols), Buf("f", (rows, cols))

    def weights(self) -> dict[str, Operand]:
        """Of one layer."""
        s, make = self.s, self.b.weight
        return {
            "qkv": make(s.qkv, s.width, FORMAT), "out": make(s.width, s.q_dim, FORMAT),
            "up": make(2 * s.n_ff, s.width, FORMAT), "down": make(s.width, s.n_ff, FORMAT),
            "gain": make(1, s.width, "F32"),
        }  # fmt: skip

    def nbytes(self, *names: str) -> float:
        """Bytes of weights."""
        return sum(float(self.w[0][n][1].nbytes) for n in names)

    def q8(self, name: str, quants: str, scales: str) -> dict[str, Operand]:
        """A vector in int8 under the names of bindings."""
        return {quants: self.v[name]["q"], scales: self.v[name]["s"]}

    def rotation(self, i: int) -> tuple[dict[str, Any], dict[str, Operand]]:
        """Sizes of heads, and what rotation and cache write take."""
        s = self.s
        params = {"n_head": s.heads, "n_head_kv": s.kv_heads, "head_dim": s.dim, "n_rot": s.dim,
                  "rows": s.qkv, "eps": EPS}  # fmt: skip
        k, v = self.caches[2 * i : 2 * i + 2]
        return params, {"y": self.y, "rope": self.rope, "k": k, "v": v}

    def qkv5(self, seq: Any, i: int) -> None:
        """Queries, keys, values."""
        params, ops = self.rotation(i)
        self.b.add(seq, qkv_rope_q8.KERNEL, params | {"cols": self.s.width, "y_off": 0},
                   w=self.w[i]["qkv"], ssq=self.v["x"]["ssq"], **self.q8("x", "xq", "xs"),
                   **ops)  # fmt: skip

    def seen(self, i: int) -> tuple[dict[str, Any], dict[str, Operand]]:
        """Sizes of heads, and what attention reads."""
        s = self.s
        params = {"n_head": s.heads, "n_head_kv": s.kv_heads, "head_dim": s.dim, "scale": 0.125,
                  "window": 0, "softcap": 0.0}  # fmt: skip
        k, v = self.caches[2 * i : 2 * i + 2]
        return params, {"qkv": self.y, "k": k, "v": v}

    def attend5(self, seq: Any, i: int) -> None:
        """Attention."""
        params, ops = self.seen(i)
        self.b.add(seq, attention_short_q8.KERNEL, params, **ops, **self.q8("att", "yq", "ys"))

    def add5(self, seq: Any, i: int, name: str, x: str) -> None:
        """A product into the stream."""
        w = self.w[i]
        params = {"cols": w[name][1].cols, "rows": self.s.width}
        self.b.add(seq, matvec_q8_add.KERNEL, params, w=w[name], g=w["gain"], y=self.v["x"]["f"],
                   ssq=self.v["x"]["ssq"], **self.q8(x, "xq", "xs"),
                   **self.q8("x", "yq", "ys"))  # fmt: skip

    def out5(self, seq: Any, i: int) -> None:
        """Output projection."""
        self.add5(seq, i, "out", "att")

    def gated5(self, seq: Any, i: int) -> None:
        """Gate and up."""
        params = {"cols": self.s.width, "rows": self.s.n_ff, "eps": EPS}
        self.b.add(seq, norm_matvec_q8_swiglu.KERNEL, params, w=self.w[i]["up"],
                   ssq=self.v["x"]["ssq"], **self.q8("x", "xq", "xs"),
                   **self.q8("ffn", "yq", "ys"))  # fmt: skip

    def down5(self, seq: Any, i: int) -> None:
        """Down projection."""
        self.add5(seq, i, "down", "ffn")

    @property
    def sliced(self) -> Operand:
        """The parts that the slices leave."""
        n = 1 + narrow.slices(self.s.n_ff)
        return self.slices[0], Buf("f", (n, self.s.width))

    def qkv3(self, seq: Any, i: int) -> None:
        """Queries, keys, values."""
        params, ops = self.rotation(i)
        self.b.add(seq, sum_qkv_rope_q8.KERNEL, params, w=self.w[i]["qkv"], g=self.w[i]["gain"],
                   x=self.sliced, sum=self.heads, **ops)  # fmt: skip

    def attend3(self, seq: Any, i: int) -> None:
        """Attention and output projection."""
        params, ops = self.seen(i)
        self.b.add(seq, attention_out_q8.KERNEL, params | {"rows": self.s.width},
                   w=self.w[i]["out"], y=self.heads, **ops)  # fmt: skip

    def ffn3(self, seq: Any, i: int) -> None:
        """All of the feed-forward network."""
        w, params = self.w[i], {"rows": self.s.n_ff, "eps": EPS}
        self.b.add(seq, sum_ffn_q8.KERNEL, params, w=w["up"], d=w["down"], g=w["gain"],
                   x=self.heads, y=self.sliced)  # fmt: skip

    def sum3(self, seq: Any, i: int) -> None:
        """The stream of all parts."""
        self.b.add(seq, sum_q8.KERNEL, {}, g=self.w[i]["gain"], x=self.sliced,
                   y=self.v["x"]["f"], ssq=self.v["x"]["ssq"],
                   **self.q8("x", "yq", "ys"))  # fmt: skip

    def ahead(self, seq: Any, *weights: tuple[str, int]) -> None:
        """Four weights of layers, read beside the dispatch before (prefetching.py)."""
        params: dict[str, Any] = {}
        tensors, shapes = {"sink": self.sink, "step": self.b.step}, {}
        for name, (weight, i) in zip(prefetch.NAMES, weights, strict=True):
            tensors[name], shapes[name] = self.w[i % self.layers][weight]
            params[f"{name}_count"] = sum(shapes[name].planes)
            params |= {f"{name}_p{j}": sum(shapes[name].planes[:j]) for j in range(4)}
        self.b.algorithms.record(
            seq, prefetch.KERNEL, tensors, shapes, params, 1, independent=True
        )  # fmt: skip

    def attend3_ahead(self, seq: Any, i: int) -> None:
        """Attention and output projection, beside reads of the next weights."""
        self.attend3(seq, i)
        self.ahead(seq, ("up", i), ("down", i), ("qkv", i + 1), ("out", i + 1))

    def attend5_ahead(self, seq: Any, i: int) -> None:
        """Attention beside reads of the next weights."""
        self.attend5(seq, i)
        self.ahead(seq, ("out", i), ("up", i), ("down", i), ("qkv", i + 1))

    def chain(self, kernels: Sequence[Record]) -> Any:
        """The kernels of each layer in turn, several times."""

        def step(kernel: Record, i: int) -> Step:
            return lambda seq: kernel(seq, i)

        steps = [step(k, i) for i in range(self.layers) for k in kernels]
        return self.b.chain(steps, REPEATS)

    def micros(self, sequences: Sequence[Any]) -> list[float]:
        """Microseconds a layer of each."""
        return [t / (self.layers * REPEATS) for t in self.b.turns(sequences)]


def table(layer: Layer, positions: int) -> None:
    """Both forms, then each kernel."""
    every = layer.nbytes("qkv", "out", "up", "down")
    cached = float(positions * layer.s.kv_dim * 4)
    three: tuple[Record, ...] = (layer.qkv3, layer.attend3, layer.ffn3)
    five: tuple[Record, ...] = (
        layer.qkv5, layer.attend5, layer.out5, layer.gated5, layer.down5,
    )  # fmt: skip
    rows: list[tuple[str, tuple[Record, ...], float]] = [
        ("layer in three", three, every + cached), ("layer in five", five, every + cached),
        ("layer in three, weights ahead", (layer.qkv3, layer.attend3_ahead, layer.ffn3), every),
        ("layer in five, weights ahead", (
            layer.qkv5, layer.attend5_ahead, layer.out5, layer.gated5, layer.down5), every),
        ("sum_qkv_rope_q8", (layer.qkv3,), layer.nbytes("qkv")),
        ("attention_out_q8", (layer.attend3,), layer.nbytes("out") + cached),
        ("sum_ffn_q8", (layer.ffn3,), layer.nbytes("up", "down")),
        ("sum_q8", (layer.sum3,), 0.0),
        ("qkv_rope_q8", (layer.qkv5,), layer.nbytes("qkv")),
        ("attention_short_q8", (layer.attend5,), cached),
        ("matvec_q8_add out", (layer.out5,), layer.nbytes("out")),
        ("norm_matvec_q8_swiglu", (layer.gated5,), layer.nbytes("up")),
        ("matvec_q8_add down", (layer.down5,), layer.nbytes("down")),
    ]
    times = layer.micros([layer.chain(kernels) for _, kernels, _ in rows])
    for (name, _, nbytes), micros in zip(rows, times, strict=True):
        layer.b.say(f"T={positions} {name}", micros, nbytes, "layer")


def main() -> None:
    """Tables, or sweeps."""
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    with Device.open(choose(args[0] if args else None)) as device:
        print(device.describe)
        layers = 1 if device.limits.software else 30
        for positions in (perf_narrow_sweep.SHORTEST, 256):
            layer = Layer(Bench(device, 4.8e12, positions), Sizes(), positions, layers)
            if "--sweep" in sys.argv:
                perf_narrow_sweep.sweep(layer, positions)
            else:
                table(layer, positions)


if __name__ == "__main__":
    main()
