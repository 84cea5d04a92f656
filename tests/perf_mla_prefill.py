"""Time of prompts of a model of DeepSeek V3's kind: python tests/perf_mla_prefill.py [DEVICE]
[--small].

Prints microseconds by the device's clock: mla_prefill_coop in several tilings (20 heads, latents of
512 + 64 values, 512 tokens, from the start and after 1536 positions), the products of 64
experts in several tiles (Q3_K, 512 tokens, 4 experts each), then every dispatch of a layer with
experts in the plan of a batch. --small takes 8 tokens and small widths. No test: it needs a
quiet machine.
"""

from __future__ import annotations

import statistics
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from perf_bench import Bench, Stack

from kompute_llm.engine.device import Device, choose
from kompute_llm.engine.plan import Buf, Phase
from kompute_llm.engine.recorder import push_words
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.synthetic import Synthetic
from kompute_llm.engine.synthetic_shape import Shape
from kompute_llm.engine.vulkan import VulkanRunner
from kompute_llm.kernels import (
    experts_matmul_coop,
    experts_matmul_coop_swiglu,
    mla_prefill,
    mla_prefill_coop,
)
from kompute_llm.kernels.experts_coop_launch import launch_experts
from kompute_llm.kernels.kernel import Kernel, Launch, Shaped
from kompute_llm.kernels.matmul_coop_launch import Tile as Product
from kompute_llm.kernels.matmul_coop_launch import launch_tile
from kompute_llm.kernels.mla_prefill_coop import Tile
from kompute_llm.kernels.reference import step_words

TABLE = Path(__file__).resolve().parent.parent / "bench_configs" / "synthetic.toml"
MODEL, HEADS, RANK, ROT, ROUNDS = "deepseek2-30b-a3b-q3_k", 20, 512, 64, 12
SMALL = "--small" in sys.argv
TOKENS = 8 if SMALL else 512
LATENT = (
    Tile(32, 32, 8, 2), Tile(32, 32, 8, 2, ahead=0), Tile(32, 32, 4, 2), Tile(32, 16, 8, 4),
    Tile(32, 16, 4, 2), Tile(32, 16, 4, 4, 2), Tile(64, 16, 16, 4), Tile(64, 16, 8, 2),
    Tile(64, 16, 8, 4, 2), Tile(64, 16, 16, 4, ahead=0), Tile(16, 32, 8, 4), Tile(16, 32, 4, 2),
    Tile(16, 16, 4, 4),
)  # fmt: skip
PRODUCTS = (
    Product(64, 64, 32, 32, 2), Product(64, 64, 32, 64, 1), Product(128, 64, 32, 64, 1),
    Product(128, 64, 32, 64, 2), Product(128, 64, 32, 32, 1), Product(128, 64, 64, 64, 1),
    Product(128, 32, 32, 32, 1), Product(128, 32, 32, 32, 2), Product(64, 32, 32, 32, 2),
    Product(128, 48, 32, 48, 1), Product(64, 48, 32, 48, 2), Product(128, 128, 64, 64, 1),
    Product(256, 64, 64, 64, 1), Product(256, 32, 64, 32, 1),
)  # fmt: skip


def micros(b: Bench, kernel: Kernel, launch: Launch, tensors: dict[str, Any], params: Any) -> float:
    """Median time of one launch, ROUNDS in one submit after a first submit."""
    bound = [tensors[x.name] for x in kernel.interface.bindings]
    algorithm, seq = b.algorithms.get(kernel, launch, bound), b.device.sequence(ROUNDS)
    for _ in range(ROUNDS):
        b.device.record(seq, algorithm, push_words(kernel, params), launch.grid)
    for _ in range(3):
        b.device.eval(seq)
    return 1e6 * float(statistics.median(b.device.elapsed(seq)[1:]))


def latent(b: Bench, pos: int) -> None:
    """Tilings of latent attention."""
    limits, sizes = b.device.limits, (HEADS, RANK, ROT)
    width = RANK + ROT
    tensors = {
        "q": b.storage(TOKENS * HEADS * width), "k": b.storage((pos + TOKENS) * width // 2),
        "y": b.storage(TOKENS * HEADS * RANK), "step": b.exchange(step_words(TOKENS, pos)),
    }  # fmt: skip
    params = {"heads": HEADS, "rank": RANK, "n_rot": ROT, "scale": 0.07, "k_base": 0}
    seen = TOKENS * pos + TOKENS * (TOKENS + 1) // 2
    print(f"latent attention, {HEADS} heads, {TOKENS} tokens after {pos} positions")
    for tile in LATENT if mla_prefill_coop.KERNEL.needs(limits) else ():
        if not tile.fits(RANK, ROT, limits):
            continue
        launch = launch_latent(tile, sizes, limits)
        took = micros(b, mla_prefill_coop.KERNEL, launch, tensors, params)
        rate = 2 * HEADS * (width + RANK) * seen / took / 1e6
        print(f"  {tile}: {took:8.1f} µs, {rate:.0f} TFLOP/s")
    shapes = {"k": Buf("k", (pos + TOKENS, width), "F16")}
    launch = mla_prefill.KERNEL.launch(shapes, params, TOKENS, limits)
    print(f"  float32: {micros(b, mla_prefill.KERNEL, launch, tensors, params):8.1f} µs")


def launch_latent(tile: Tile, sizes: tuple[int, int, int], limits: Any) -> Launch:
    """float16 results."""
    return mla_prefill_coop.launch_tile(tile, "HALF", sizes, TOKENS, limits)


def experts(b: Bench, s: Shape) -> None:
    """Tiles of the products of routed experts."""
    limits, pairs = b.device.limits, TOKENS * s.used
    rng = np.random.default_rng(1)
    chosen = np.stack([rng.permutation(s.experts)[: s.used] for _ in range(TOKENS)])
    counts = np.bincount(chosen.reshape(-1), minlength=s.experts)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    print(f"{s.experts} experts, {TOKENS} tokens, {counts.min()} to {counts.max()} of an expert")
    kernels = (
        (experts_matmul_coop_swiglu.KERNEL, s.ff_expert, s.embd, True),
        (experts_matmul_coop.KERNEL, s.embd, s.ff_expert, False),
    )
    for kernel, rows, cols, gated in kernels if kernels[0][0].needs(limits) else ():
        weight, stack = b.weight((1 + gated) * s.experts * rows, cols, s.format)
        tensors = {
            "x": b.storage(pairs * cols // 2), "w": weight, "y": b.storage(pairs * rows),
            "start": b.exchange(start), "step": b.exchange(step_words(TOKENS, 0)),
        }  # fmt: skip
        params = product_params(s, stack, rows, cols)
        shapes: dict[str, Shaped] = {"x": Buf("x", (pairs, cols), "F16"), "w": stack}
        best = launch_experts(shapes, params, TOKENS, limits, gated)
        print(f" {kernel.name}, {rows} x {cols}")
        print(f"  as launched, {best.spec[1:8]}: "
              f"{micros(b, kernel, best, tensors, params):8.1f} µs")  # fmt: skip
        for tile in (t for t in PRODUCTS if t.fits(limits, gated)):
            m = rows * (1 + gated)
            made = launch_tile(tile, s.format, m, TOKENS, False, limits)
            took = []
            for ragged in (0, 1):
                grid = (*made.grid[:2], s.experts)
                launch = Launch(made.build, (*made.spec, ragged), grid, made.subgroup_size)
                took.append(micros(b, kernel, launch, tensors, params))
            print(f"  {tile.bm} x {tile.bn} ({tile.wm} x {tile.wn}), {tile.depth}: "
                  f"{took[0]:8.1f} µs, without absent tokens {took[1]:8.1f}")  # fmt: skip


def product_params(s: Shape, stack: Stack, rows: int, cols: int) -> dict[str, int | float]:
    """Push words of a product of the routed experts."""
    planes = {f"w_p{i}": sum(stack.planes[:i]) for i in range(4)}
    return {
        "cols": cols, "rows": rows, "x_stride": cols, "y_stride": rows, "y_off": 0, "first": 0,
        "row0": 0, "up": s.experts * rows, "groups": s.experts, "slots": s.used,
        "experts": s.experts, **planes,
    }  # fmt: skip


def layers(device: Device, s: Shape) -> None:
    """Every dispatch of the last layer of a small model, and the sums of its phases."""
    c = Synthetic(MODEL, replace(s, layers=s.dense + 2, vocab=1024))
    r = VulkanRunner(c, model_spec(c), device, 2 * TOKENS, "f16", "f16", batch=TOKENS)
    plan = r._forward.prefill(TOKENS, (), head=False)
    prepared = r._recordings.prepared(plan, TOKENS)
    ids = np.random.default_rng(0).integers(0, 1024, TOKENS)
    seq = device.sequence(len(prepared) + 1)
    device.sync_device(seq, [r._buffers["step"], r._buffers["tokens"]])
    for p in prepared:
        p.record(device, seq)
    r._progress.begin(Sampling(), 1)
    r._set_step(ids.tolist(), 0)
    spans = []
    for _ in range(6):
        device.eval(seq)
        spans.append(device.elapsed(seq)[-len(prepared) :])
    median = np.median(spans[1:], axis=0) * 1e6
    first = next(i for i, d in enumerate(plan.dispatches) if f"blk.{s.dense + 1}." in d.label)
    print(f"dispatches of a layer with experts, {TOKENS} tokens, {r._forward.opts.products}")
    phases: dict[Phase, float] = {}
    for d, p, took in list(zip(plan.dispatches, prepared, median, strict=True))[first:]:
        phases[d.phase] = phases.get(d.phase, 0.0) + took
        print(f"  {d.phase.value:18} {d.kernel.name:28} {took:8.1f} µs  grid {p.grid} {d.label}")
    for phase, took in phases.items():
        print(f"  {phase.value:18} {took:8.1f} µs")


def main() -> None:
    """All tables."""
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    shape = Shape.of(MODEL, tomllib.loads(TABLE.read_text(encoding="utf-8"))[MODEL])
    if SMALL:
        shape = replace(shape, embd=256, ff=512, q_lora=256, experts=8, ff_expert=256)
    with Device.open(choose(names[0] if names else None)) as device:
        print(device.describe)
        b = Bench(device, 1.0, 1)
        for pos in (0, 30 if SMALL else 1536):
            latent(b, pos)
        experts(b, shape)
        layers(device, shape)


if __name__ == "__main__":
    main()
