"""Table look-ups and bytes in vectors, for the formats whose quants are indices."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types

from ..engine.grids import grid_words
from .fast_half import cpu_features
from .fast_simd import FLOAT, I8, I32, I64, LANES, S8, S32, U8, call, cgutils, op

ARM = platform.machine().lower() in ("aarch64", "arm64")
# One instruction that looks up 16 bytes in a table of 16, where the CPU has one
SHUFFLE = (
    "llvm.aarch64.neon.tbl1.v16i8" if ARM
    else "llvm.x86.ssse3.pshuf.b.128" if "ssse3" in cpu_features() else ""
)  # fmt: skip


def code_table(values: tuple[int, ...]) -> Any:
    """Intrinsic: the signed bytes of a table of 16 that 16 indices below 16 stand for."""

    @op(S8, U8)
    def look_up(b: Any, index: Any) -> Any:
        table = ir.Constant(S8.llvm, list(values))
        if SHUFFLE:
            return call(b, SHUFFLE, S8.llvm, table, index)
        found = ir.Constant(S8.llvm, ir.Undefined)
        for lane in range(LANES):
            i = b.zext(b.extract_element(index, I32(lane)), I32)
            found = b.insert_element(found, b.extract_element(table, i), I32(lane))
        return found

    return look_up


def grid_address(name: str) -> Any:
    """Intrinsic: the address of a format's codebook (engine/grids.py), part of the compiled code.

    Its argument is not used: intrinsics have one.
    """
    raw = grid_words(name).tobytes()

    @op(types.int64, types.int64)
    def address(b: Any, unused: Any) -> Any:
        kind = ir.ArrayType(I8, len(raw))
        held = cgutils.global_constant(b, f"grid_{name}", ir.Constant(kind, bytearray(raw)))
        return b.ptrtoint(held, I64)

    return address


@op(U8, types.int64, types.int64)
def from_words(b: Any, low: Any, high: Any) -> Any:
    """16 bytes out of two words of 8."""
    pair = ir.Constant(ir.VectorType(I64, 2), ir.Undefined)
    pair = b.insert_element(pair, low, I32(0))
    return b.bitcast(b.insert_element(pair, high, I32(1)), U8.llvm)


@op(S32, S8)
def widen_signed(b: Any, value: Any) -> Any:
    """Bytes, signed, as int32."""
    return b.sext(value, S32.llvm)


@op(types.float32, types.int64)
def bits_float(b: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""
    return b.bitcast(b.trunc(bits, I32), FLOAT)
