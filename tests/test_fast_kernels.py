"""The compiled kernels against their NumPy references, on every case of every kernel."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import njit, types

from kompute_llm.engine.blocks import Matrix
from kompute_llm.engine.cpu_team import Program, Team
from kompute_llm.engine.plan import Buf, Dispatch, Phase, Weight
from kompute_llm.kernels import cache_rows, fast, fast_half
from kompute_llm.kernels.fast import FAST
from kompute_llm.kernels.fast_simd import op
from kompute_llm.kernels.kernel import Access, Case, Kernel

DTYPES = {"float32": "F32", "float16": "F16", "uint32": "U32"}


def kernel(name: str) -> Kernel:
    found: Kernel = import_module(f"kompute_llm.kernels.{name}").KERNEL
    return found


@pytest.fixture(scope="module", params=[1, 3])
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    made = Team(request.param)
    yield made
    made.close()


def run_fast(team: Team, k: Kernel, case: Case, arrays: dict[str, Any]) -> None:
    """One operation over copies of a case's operands."""
    operands: dict[str, Any] = {}
    for name, value in case.operands.items():
        if isinstance(value, Matrix):
            operands[name] = Weight(name, split(value))
        else:
            names = value.dtype.names
            kind = cache_rows.kind_of(value) if names else DTYPES[value.dtype.name]
            operands[name] = Buf(name, value.shape, kind)
    program = Program([Dispatch(k, operands, case.params, Phase.FFN)], arrays, team.members)
    team.run(program.ops, 1)


def split(m: Matrix) -> tuple[Matrix, ...]:
    """Up to three parts of unequal size, as q, k and v are stacked."""
    cuts = sorted({0, m.rows // 4, m.rows // 4 + m.rows // 3, m.rows})
    parts = [m.raw[a:b] for a, b in pairwise(cuts)]
    return tuple(Matrix(m.fmt, raw, len(raw), m.cols) for raw in parts)


def poisoned(k: Kernel, case: Case) -> dict[str, Any]:
    """Arrays of a case; what the kernel only writes is NaN before."""
    written = {b.name for b in k.interface.bindings if b.access is Access.WRITE}
    arrays = {n: v.copy() for n, v in case.operands.items() if not isinstance(v, Matrix)}
    for name in written & set(arrays):
        arrays[name].fill(np.nan if arrays[name].dtype.kind == "f" else 0xFFFFFFFF)
    return arrays


def nmse(got: Any, want: Any) -> float:
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(np.square(got - want).sum() / max(np.square(want).sum(), 1e-300))


def check(case: Case, name: str, got: Any, want: Any) -> None:
    """Equal words for exact cases and inputs, else NaN at the same places and a small error."""
    if case.exact or want.dtype == np.uint32:
        assert np.array_equal(got.view(np.uint8), want.view(np.uint8)), (case.name, name)
        return
    compared = case.only.get(name, np.full(want.shape, True))
    got, want = (cache_rows.comparable(x[compared]) for x in (got, want))
    assert (np.isnan(got) == np.isnan(want)).all(), (case.name, name, "other elements written")
    filled = ~np.isnan(want)
    error = nmse(got[filled], want[filled])
    assert error <= case.limit, (case.name, name, error)


# kernels that share their inner loops with embed and matvec, which take every format
SHARING = (
    "matvec_add", "norm_matvec", "norm_matvec_swiglu", "norm_matvec_geglu", "matmul", "matmul_add",
)  # fmt: skip
FEW = ("F32", "Q4_1", "Q6_K")


@pytest.mark.parametrize("name", sorted(FAST))
def test_cases(name: str, team: Team) -> None:
    k = kernel(name)
    for case in k.cases(np.random.default_rng(5)):
        w = case.operands.get("w")
        if name in SHARING and isinstance(w, Matrix) and w.fmt.name not in FEW:
            continue
        want, got = poisoned(k, case), poisoned(k, case)
        weights = {n: v for n, v in case.operands.items() if isinstance(v, Matrix)}
        k.reference(**want, **weights, **case.params)
        run_fast(team, k, case, got)
        for array in want:
            check(case, array, got[array], want[array])


def test_half_without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integer conversions agree with NumPy on every float16, and between its neighbours."""
    monkeypatch.setattr(fast_half, "NATIVE", False)

    @op(types.float32, types.int64)
    def widen(b: Any, address: Any) -> Any:
        return fast_half.widen_half(b, address, 1)

    half_bits: Any = fast_half.half_bits

    @njit
    def convert(wide: Any, address: int, floats: Any, narrow: Any) -> None:
        for i in range(wide.size):
            wide[i] = widen(address + 2 * i)
        for i in range(floats.size):
            narrow[i] = half_bits(floats[i])

    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = every.astype(np.float32)
    with np.errstate(all="ignore"):
        near = [exact, *(np.nextafter(exact, np.float32(x)) for x in (9e9, -9e9))]
        ties = (exact[:-1] + exact[1:]) / 2
        edges = np.array([1e-30, 65519, 65520, 7e4, -3e38], np.float32)
        floats = np.concatenate([*near, ties, edges])
        want = floats.astype(np.float16)
    wide, narrow = np.empty_like(exact), np.empty(floats.size, np.uint16)
    convert(wide, every.ctypes.data, floats, narrow)
    assert np.array_equal(wide, exact, equal_nan=True)
    assert np.array_equal(narrow.view(np.float16), want, equal_nan=True)
    assert np.array_equal(np.signbit(wide), np.signbit(exact))


def test_the_first_compilation_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = SimpleNamespace(address=1, cache_hits=1), []
    monkeypatch.setattr(fast, "cfunc", lambda *args, **how: lambda source: made)
    fast.on_compile(lambda: told.append("compiling"))
    compiled = fast.compiled.__wrapped__
    compiled("swiglu", "")
    assert not told  # it came from the disk
    made.cache_hits = 0
    for name in ("swiglu", "rmsnorm"):
        compiled(name, "")
    assert told == ["compiling"]
    fast.on_compile(lambda: None)
