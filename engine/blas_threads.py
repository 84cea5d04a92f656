"""Threads of the BLAS library that NumPy brings along, where several threads multiply at once.

OpenBLAS spreads every product over all cores, which then wait for each other: eight threads on two
cores took two to six times as long for the references of `validate` as with one core a product.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

# of NumPy's own builds, of others with 64-bit integers, of distributions
NAMES = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")
Functions = tuple[Callable[[], int], Callable[[int], None]]


@cache
def functions() -> Functions | None:
    """(get, set) of the number of threads; None with another library than OpenBLAS."""
    package = Path(np.__file__).parent
    folders = (package.parent / "numpy.libs", package / ".dylibs")
    for path in sorted(p for folder in folders for p in folder.glob("*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in NAMES:
            get = getattr(library, name.format("get_num_threads"), None)
            put = getattr(library, name.format("set_num_threads"), None)
            if get and put:
                get.restype, put.argtypes, put.restype = ctypes.c_int, [ctypes.c_int], None
                return get, put
    return None


@contextmanager
def one_core_a_product() -> Iterator[None]:
    """One core for each product of any thread inside; the same as outside with other libraries."""
    found = functions()
    if found is None:
        yield
        return
    get, put = found
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)
