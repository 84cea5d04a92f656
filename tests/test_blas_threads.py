"""Threads of NumPy's BLAS library, set for a while."""

from __future__ import annotations

import pytest

from kompute_llm.engine import blas_threads
from kompute_llm.engine.harness_ahead import in_advance


def test_one_core_inside_as_before_outside() -> None:
    found = blas_threads.functions()
    if found is None:
        pytest.skip("NumPy has no OpenBLAS of its own")
    get, put = found
    before = get()
    try:
        put(2)
        with pytest.raises(KeyError), blas_threads.one_core_a_product():
            assert get() == 1
            raise KeyError
        assert get() == 2
        assert list(in_advance(lambda _: get(), range(3), 2)) == [1, 1, 1]
        assert get() == 2
    finally:
        put(before)


def test_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_threads, "functions", lambda: None)
    with blas_threads.one_core_a_product():
        pass
