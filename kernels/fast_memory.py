"""Loads and stores of compiled kernels, at int64 addresses of any alignment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from .fast_half import widen_half
from .fast_simd import F32, FLOAT, HALF, I8, I16, I32, I64, LANES, U8, Vec, call, op, pointer

Load = Callable[[int], Any]
LoadInt = Callable[[int], int]
LoadFloat = Callable[[int], float]
Store = Callable[[int, Any], None]
_SCALARS = {types.float32: FLOAT, types.int64: I64, types.float64: ir.DoubleType()}


def loader(kind: Any) -> Any:
    """Intrinsic: load a Vec or scalar of a Numba type from an address of any alignment."""

    @op(kind, types.int64)
    def load(b: Any, address: Any) -> Any:
        llvm = kind.llvm if isinstance(kind, Vec) else _SCALARS[kind]
        return b.load(pointer(b, address, llvm), align=1)

    return load


def storer(kind: Any) -> Any:
    """Intrinsic: store(address, value) of a Vec or scalar of a Numba type."""

    @op(types.void, types.int64, kind)
    def store(b: Any, address: Any, value: Any) -> Any:
        return b.store(value, pointer(b, address, value.type), align=1)

    return store


load_word: LoadInt = loader(types.int64)
load_f64: LoadFloat = loader(types.float64)
load_one: LoadFloat = loader(types.float32)
load: Load = loader(F32)
load_bytes: Load = loader(U8)
store_word: Store = storer(types.int64)
store_one: Store = storer(types.float32)
store: Store = storer(F32)


AHEAD = 4096  # bytes that `prefetch` is used ahead of reading: hardware stops at a page's end


@op(types.void, types.int64)
def prefetch(b: Any, address: Any) -> Any:
    """Ask for the cache line at an address, which need not exist."""
    where = pointer(b, address, I8)
    return call(b, "llvm.prefetch.p0", ir.VoidType(), where, I32(0), I32(3), I32(1))


def _widened(elem: Any, extend: str) -> Any:
    """Load an integer as int64."""

    @op(types.int64, types.int64)
    def load(b: Any, address: Any) -> Any:
        return getattr(b, extend)(b.load(pointer(b, address, elem), align=1), I64)

    return load


load_u8: LoadInt = _widened(I8, "zext")
load_i8: LoadInt = _widened(I8, "sext")
load_u32: LoadInt = _widened(I32, "zext")


@op(types.void, types.int64, types.int64)
def store_u32(b: Any, address: Any, value: Any) -> Any:
    """The low 32 bits."""
    return b.store(b.trunc(value, I32), pointer(b, address, I32), align=1)


def _float_loader(elem: Any, lanes: int) -> Any:
    """Load f16 (or bf16, the upper half of an f32) or int8 values as float32."""
    result = F32 if lanes > 1 else types.float32

    @op(result, types.int64)
    def load(b: Any, address: Any) -> Any:
        def wide(t: Any) -> Any:
            return ir.VectorType(t, lanes) if lanes > 1 else t

        if elem is HALF:
            return widen_half(b, address, lanes)
        value = b.load(pointer(b, address, wide(elem)), align=1)
        if elem is I8:
            return b.sitofp(b.sext(value, wide(I32)), wide(FLOAT))
        shift = ir.Constant(wide(I32), [16] * lanes)
        return b.bitcast(b.shl(b.zext(value, wide(I32)), shift), wide(FLOAT))

    return load


load_f16: Load = _float_loader(HALF, LANES)
load_bf16: Load = _float_loader(I16, LANES)
load_i8_f32: Load = _float_loader(I8, LANES)
half: LoadFloat = _float_loader(HALF, 1)
