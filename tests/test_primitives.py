"""Primitives in the shapes of models: their inputs, their limits, the ways to issue them."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import ROOT

from kompute_llm.cli.validate_choice import choose
from kompute_llm.engine import primitives_attention as attention
from kompute_llm.engine import primitives_experts as experts
from kompute_llm.engine import primitives_latent as latent
from kompute_llm.engine import primitives_latent_token as in_one
from kompute_llm.engine import primitives_rotation as rotation
from kompute_llm.engine.blocks import FORMATS, Matrix
from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import can_run, push_values, shape_of
from kompute_llm.engine.harness_bench import copies_of, timed
from kompute_llm.engine.harness_bound import Bound, Loader
from kompute_llm.engine.harness_chain import (
    Chain,
    Link,
    Output,
    chain_of,
    compare,
    reference,
    same,
)
from kompute_llm.engine.harness_errors import Errors, measure
from kompute_llm.engine.harness_primitives import Checker, prepare, runnable, sample
from kompute_llm.engine.layout import binding_limit
from kompute_llm.engine.primitives import (
    ROUNDED,
    Check,
    Primitive,
    all_primitives,
    fitting_rows,
    formats_of,
    ragged,
    weight,
)
from kompute_llm.kernels import matvec, norm_matvec_q8, q8, rmsnorm
from kompute_llm.kernels.limits import Limits
from kompute_llm.kernels.reference import random_matrix, step_words

PRIMITIVES = all_primitives()
ROOM = 1 << 62
TAILORED = ("qkv", "q-prep", "mla", "experts", "experts-batch")
each = pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda p: p.name)


def small(primitive: Primitive, checks: list[Check]) -> list[Check]:
    """A check or two that take little time on a software device."""
    heavy = ("16384", "6144", "F32 ", "F16 ", "64 heads", "64/8", "T=2000", "q8_0")
    light = [c for c in checks if not any(word in c.name for word in heavy)] or checks
    return sample(light, primitive, 11, 2)


@each
def test_checks_are_what_they_say(primitive: Primitive) -> None:
    """Names are unique, kernels are those of the chain, every limit has a reason."""
    checks = list(primitive.checks(ROOM))
    assert Counter(c.name for c in checks).most_common(1)[0][1] == 1
    assert not any("," in c.name for c in checks)  # --only takes lists
    assert primitive.limit.reason
    assert primitive.limit.measure in ("max rel", "NMSE", "exact")
    for check in small(primitive, checks):
        chain = check.chain(1, primitive.name)
        assert {link.kernel.name for link in chain.links} <= {k.name for k in check.kernels}
        assert {o.name for o in chain.outputs} <= set(chain.operands)
        assert chain.bytes > 0


BIG = Limits(
    workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_bytes=49152,
    subgroup_size=32, subgroup_count=32, subgroup_arithmetic=True, full_subgroups=True,
    int_dot=True, coopmat=True, compute_units=100,
)  # fmt: skip


@each
def test_every_kernel_gets_what_it_needs(primitive: Primitive) -> None:
    """Launches and push words of all kernels, also of those that no software device runs."""
    seen = set()
    for check in primitive.checks(ROOM):
        heavy = ("F32", "16384", "64 heads", "K=8 2048x6144")
        if check.kernels in seen or any(word in check.name for word in heavy):
            continue
        seen.add(check.kernels)
        chain = check.chain(1, primitive.name)
        for link in chain.links:
            ops = chain.operands_of(link)
            shapes = {n: shape_of(n, v) for n, v in ops.items()}
            launch = link.kernel.launch(shapes, link.params, link.rows, BIG)
            assert launch.build in link.kernel.interface.builds
            given = push_values(link.kernel, ops, link.params)
            assert {name for name, _ in link.kernel.interface.push} <= set(given)
            asked = inspect.signature(link.kernel.reference).parameters.values()
            needed = {p.name for p in asked if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
            assert needed <= {*link.params, *ops}
    assert {k for c in primitive.checks(ROOM) for k in c.kernels} == {k for s in seen for k in s}


@pytest.mark.parametrize("primitive", [p for p in PRIMITIVES if p.name not in TAILORED],
                         ids=lambda p: p.name)  # fmt: skip
def test_primitives_hold_on_the_device(vulkan: Device, primitive: Primitive) -> None:
    checks = runnable(vulkan, primitive)
    assert checks
    results = list(
        Checker(vulkan, 5).results(primitive, small(primitive, checks), lambda _: None,
                                   lambda: False)
    )  # fmt: skip
    assert [f"{r.case}: {r.max_rel} {r.note}" for r in results if not r.ok] == []
    assert all(r.build for r in results)


HEADS = latent.Heads(256, 2, 256, 64, 32, 32, 32)
GROUP = experts.Group(4, 256, 64)
MIX = ("F16", "F16")
CHAINS: dict[str, Callable[[bool, np.random.Generator], Chain]] = {
    "q-prep": lambda i, rng: latent.preparation(i, "Q8_0", HEADS, True, rng),
    "mla": lambda i, rng: latent.absorbed(i, "Q8_0", HEADS, 70, False, ROOM, rng),
    "qkv": lambda i, rng: rotation.project("Q8_0", attention.Heads(4, 2, 32), 256, i, MIX, rng),
    "experts-batch": lambda i, rng: experts.of_batch(
        "int8" if i else "f32", "Q8_0", GROUP, 2, 5, ROOM, rng
    ),
    "experts": lambda i, rng: experts.token(i, "Q8_0", GROUP, 40_000, rng),
}


IN_ONE: dict[str, Callable[[bool, np.random.Generator], Chain]] = {
    "q-prep": lambda plain, rng: in_one.prepared(plain, "Q4_0", HEADS, 1, rng),
    "mla": lambda plain, rng: in_one.projected(plain, "Q8_0", HEADS, 64, ROOM, rng),
}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", IN_ONE)
def test_latent_attention_in_one_dispatch_holds(vulkan: Device, name: str, plain: bool) -> None:
    """The cache's row and the values count, and nothing behind the context is read."""
    chain = IN_ONE[name](plain, np.random.default_rng(4))
    if not all(can_run(vulkan, link.kernel) for link in chain.links):
        pytest.skip(f"{vulkan.info.name} has no packed dot products")
    k: Any = chain.operands["k"]
    assert np.isnan(k[-1]).all() and chain.bytes < sum(v.nbytes for v in chain.operands.values())
    got, want = Bound(vulkan, chain).run(), reference(chain)
    floats, rounded = compare(chain, want, got)
    limit = next(p.limit for p in PRIMITIVES if p.name == name)
    assert not floats.note and floats.max_rel <= limit.value
    assert not rounded.note and rounded.max_rel <= ROUNDED
    row: Any = got["k"]
    row[0 if name == "q-prep" else 63] = 0
    assert compare(chain, want, got)[0].max_rel > limit.value


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", TAILORED)
def test_chains_hold_on_the_device(vulkan: Device, name: str, int8: bool) -> None:
    """Small ones of the primitives whose checks take long; stacks cut to a small binding."""
    chain = CHAINS[name](int8, np.random.default_rng(2))
    if not all(can_run(vulkan, link.kernel) for link in chain.links):
        pytest.skip(f"{vulkan.info.name} has no packed dot products")
    bound = Bound(vulkan, chain)
    got = bound.run()
    floats, rounded = compare(chain, reference(chain), got)
    limit = next(p.limit for p in PRIMITIVES if p.name == name)
    assert not floats.note and floats.max_rel <= limit.value
    assert not rounded.note and rounded.max_rel <= ROUNDED
    assert len(chain.links) > 2 or name in ("q-prep", "qkv")
    for _ in range(2):
        assert same(got, bound.run_in_flight()) == Errors()
    assert same(got, {n: v + 1 for n, v in got.items()}).note.endswith("bytes differ")


def test_formats_and_shapes() -> None:
    """Every quantized format meets every product; widths have odd numbers of blocks."""
    by_name = {p.name: [c.name for c in p.checks(ROOM)] for p in PRIMITIVES}
    for fmt in q8.FORMATS:
        for primitive in ("product", "gate-up", "pair", "experts", "mla", "q-prep", "qkv"):
            assert any(fmt in name.split() for name in by_name[primitive]), fmt
        cols = ragged(fmt, 6144)
        assert cols % FORMATS[fmt].elems == 0 and cols // max(32, FORMATS[fmt].elems) % 2
    for text in ("1536x6144", "6144x16384", "S=2", "S=4", "S=8", "S=11"):
        assert any(text in name for name in by_name["product"])
    for text in ("T=1 ", "T=33 ", "T=512 ", "window=512 T=2000 ", "ring=1088 T=2000 "):
        names = by_name["attention"]
        assert any(n.startswith("attention_short_q8") and text in n for n in names)
    for text in ("Q3_K 20 heads 768/512+64", "Q4_K 64 heads 1536/512+64", "Q4_K 64 heads 2048/"):
        for kernel in ("mla_token", "mla_token_plain", "mla_absorb_q8"):
            assert any(n.startswith(f"{kernel} {text}") for n in by_name["mla"])
    for text in ("K=1 ", "K=8 ", "K=32 "):
        assert any(text in name for name in by_name["experts"])
    assert set(formats_of(norm_matvec_q8.KERNEL)) == set(q8.FORMATS)


def test_figures_have_their_lines() -> None:
    """The selections of docs/validate.md, "Figures of single primitives"."""
    text = (ROOT / "docs" / "validate.md").read_text()
    asked = re.findall(r"--bench --only '(.*/.*)'", text)
    found = {}
    for pattern in asked:
        chosen = choose([pattern])
        found[pattern] = [c for p in chosen.primitives
                          for c in chosen.checks(p, list(p.checks(ROOM)))]  # fmt: skip
    experts_, pair, mla, short = ([c.name for c in checks] for checks in found.values())
    assert sorted(experts_) == [f"token int8 INT{n}_G64 K={k} 2048x6144"
                                for n in (3, 4) for k in (32, 8)]  # fmt: skip
    assert sorted(pair) == [f"norm_matvec_q8 INT{n}_G64 2048+576x6144" for n in (3, 4)]
    assert len(mla) == 10 and len(short) == 9
    huge = next(c for c in found[asked[0]] if "K=32" in c.name)
    assert huge.timed and huge.name.endswith("K=32 2048x6144")


def test_a_seed_gives_the_same_inputs_whatever_else_runs() -> None:
    primitive = next(p for p in PRIMITIVES if p.name == "norm")
    first, second, *_ = primitive.checks(ROOM)
    again: Any = second.chain(7, "norm").operands["x"]
    list(prepare([first, second], primitive, 7, 0))
    one: Any = second.chain(7, "norm").operands["x"]
    other: Any = second.chain(8, "norm").operands["x"]
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    ahead = prepare([first, second], primitive, 7, 2)
    assert [p.check.name for p in ahead] == [first.name, second.name]
    samples = [[c.name for c in sample(list(primitive.checks(ROOM)), primitive, s, 3)]
               for s in (1, 1, 2, 3)]  # fmt: skip
    assert samples[0] == samples[1] and len(set(map(str, samples))) > 1


def test_repeated_rows_decode_like_any_other() -> None:
    w = weight(np.random.default_rng(1), "Q4_K", 1024, 1024)
    plain = Matrix.of(w.fmt, w.raw, w.cols)
    assert np.array_equal(w.dequantize(3, 700), plain.dequantize(3, 700))
    assert len(np.unique(w.raw, axis=0)) <= 64
    assert fitting_rows("F32", 6144, 16384, 1 << 27) == 1984
    assert fitting_rows("Q4_0", 6144, 16384, 1 << 27) == 6144


def rms(cols: int = 64) -> Chain:
    ops: dict[str, Any] = {
        "x": np.ones((1, cols), np.float32), "y": np.zeros((1, cols), np.float32),
        "g": random_matrix(np.random.default_rng(0), "F32", 1, cols), "step": step_words(1, 0),
    }  # fmt: skip
    return chain_of(ops, [Link(rmsnorm.KERNEL, {"n_embd": cols, "eps": 1e-5})], "y")


def test_unwritten_outputs_and_nan_fail(vulkan: Device) -> None:
    """A stopped step writes nothing: what is read is the poison."""
    chain = rms()
    assert chain.poisoned == {"y"}
    want = reference(chain)
    got = Bound(vulkan, chain).run()
    assert compare(chain, want, got)[0].max_rel < 1e-6
    stopped: Any = chain.operands["step"]
    stopped[2:] = 1  # wherever the stop flag is
    silent = Bound(vulkan, chain).run()
    errors, _ = compare(chain, want, silent)
    assert "not finite or not written" in errors.note
    nan = {"y": np.full((1, 64), np.nan, np.float32)}
    assert compare(chain, want, nan)[0].note
    assert compare(chain, nan, want)[0].note  # nor may a reference be NaN


def test_measures() -> None:
    a = np.array([1, -4, 2], np.float32)
    found = measure("y", a, a + np.array([0, 0, 0.4], np.float32))
    assert found.max_rel == pytest.approx(0.1)
    assert found.nmse == pytest.approx(0.16 / 21)
    assert measure("y", a, a, exact=True) == Errors()
    assert measure("y", a, -a, exact=True).note == "y: 3 of 3 words differ"
    ids = np.array([1, 2], np.uint32)
    assert measure("ids", ids, ids[::-1].copy()).note == "ids: 2 of 2 words differ"
    assert Errors(1, 2, "a").worst(Errors(3, 1, "b")) == Errors(3, 2, "a")


def test_int8_outputs_count_as_values() -> None:
    """One step of 127 passes, two do not; a scale alone is caught as well."""
    x = np.linspace(-1, 1, 32).astype(np.float32)
    xq, xs = q8.quantize(x)
    chain = Chain({"yq": xq, "ys": xs}, (), (Output("yq", scales="ys"),))
    moved = xq.copy()
    moved.view(np.int8)[3] += 1
    _, errors = compare(chain, {"yq": xq, "ys": xs}, {"yq": moved, "ys": xs})
    assert 0 < errors.max_rel <= ROUNDED
    moved.view(np.int8)[3] += 1
    assert compare(chain, {"yq": xq, "ys": xs}, {"yq": moved, "ys": xs})[1].max_rel > ROUNDED
    assert compare(chain, {"yq": xq, "ys": xs}, {"yq": xq, "ys": xs * 1.1})[1].max_rel > ROUNDED


def test_times(vulkan: Device) -> None:
    """Copies of the weights pass by any cache; times are of the device and of calls."""
    rng = np.random.default_rng(3)
    ops: dict[str, Any] = {
        "x": rng.standard_normal((1, 2048)).astype(np.float32),
        "w": weight(rng, "Q8_0", 1024, 2048), "y": np.zeros((1, 1024), np.float32),
        "step": step_words(1, 0),
    }  # fmt: skip
    params = {"cols": 2048, "rows": 1024, "y_stride": 1024, "y_off": 0}
    chain = chain_of(ops, [Link(matvec.KERNEL, params)], "y", experts=2)
    assert 10 < copies_of(vulkan, chain) <= 32
    found = timed(vulkan, "product", "matvec", chain, Loader(vulkan))
    assert 0 < found.device < 1
    assert found.call > 0 and found.copies > 10
    assert found.bytes == sum(v.nbytes for v in ops.values())
    assert found.rate == found.bytes / found.device
    assert found.per_expert == found.device / 2
    assert binding_limit(vulkan) > 0
