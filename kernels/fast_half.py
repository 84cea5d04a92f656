"""float16 in compiled kernels: by instructions where the CPU has them, else by integer arithmetic.

x86-64 before F16C (2012, and some virtual CPUs) has none, and LLVM would call functions that are
not there.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types

from .fast_simd import FLOAT, HALF, I16, I32, device, float_bits, op, pointer


def cpu_features() -> frozenset[str]:
    """LLVM's names of what kernels are compiled for: this CPU, or NUMBA_CPU_FEATURES."""
    config: Any = numba.config
    if config.CPU_FEATURES is not None:
        return frozenset(f[1:] for f in config.CPU_FEATURES.split(",") if f.startswith("+"))
    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)


IS_X86 = platform.machine().lower() in ("x86_64", "amd64", "i686")
NATIVE = not IS_X86 or "f16c" in cpu_features()


def widen_half(b: Any, address: Any, lanes: int) -> Any:
    """Emit the load of float16 values (a vector when lanes > 1) as float32."""

    def wide(t: Any) -> Any:
        return ir.VectorType(t, lanes) if lanes > 1 else t

    def const(value: int) -> Any:
        return ir.Constant(wide(I32), [value] * lanes if lanes > 1 else value)

    if NATIVE:
        return b.fpext(b.load(pointer(b, address, wide(HALF)), align=1), wide(FLOAT))
    bits = b.zext(b.load(pointer(b, address, wide(I16)), align=1), wide(I32))
    size = b.and_(bits, const(0x7FFF))
    shifted = b.shl(size, const(13))
    # the exponent's bias grows by 112: a multiplication, which makes subnormals normal too
    scale = b.bitcast(const((127 + 112) << 23), wide(FLOAT))
    finite = b.bitcast(b.fmul(b.bitcast(shifted, wide(FLOAT)), scale), wide(I32))
    special = b.or_(shifted, const(0x7F800000))  # infinities and NaN
    size = b.select(b.icmp_unsigned(">=", size, const(0x7C00)), special, finite)
    sign = b.shl(b.and_(bits, const(0x8000)), const(16))
    return b.bitcast(b.or_(size, sign), wide(FLOAT))


@op(types.void, types.int64, types.float32)
def _store_native(b: Any, address: Any, value: Any) -> Any:
    return b.store(b.fptrunc(value, HALF), pointer(b, address, HALF), align=1)


@op(types.void, types.int64, types.int64)
def _store_u16(b: Any, address: Any, value: Any) -> Any:
    return b.store(b.trunc(value, I16), pointer(b, address, I16), align=1)


@op(types.float32, types.int64)
def _float_of(b: Any, bits: Any) -> Any:
    return b.bitcast(b.trunc(bits, I32), FLOAT)


@device
def float_of_half(bits: int) -> Any:
    """The float32 of 16 bits of a float16."""
    size, sign = (bits & 0x7FFF) << 13, (bits & 0x8000) << 16
    if size >= 0x0F800000:  # infinities and NaN
        return _float_of(sign | size | 0x7F800000)
    # the exponent's bias grows by 112: a multiplication, which makes subnormals normal too
    return _float_of(sign | size) * _float_of((127 + 112) << 23)


@device
def half_bits(value: float) -> int:
    """The float16 nearest to a float32, ties to even, as 16 bits."""
    bits: int = float_bits(value)
    sign, size = bits >> 16 & 0x8000, bits & 0x7FFFFFFF
    if size >= 0x47800000:  # 65536 and above
        return sign | (0x7E00 if size > 0x7F800000 else 0x7C00)
    if size < 0x38800000:  # subnormal: adding 0.5 leaves 2^-24 as the last bit
        shifted: int = float_bits(_float_of(size) + _float_of(0x3F000000))
        return sign | (shifted - 0x3F000000)
    return sign | ((size - (112 << 23) + 0xFFF + (size >> 13 & 1)) >> 13)


@device
def _store_bits(address: int, value: float) -> None:
    _store_u16(address, half_bits(value))


store_half = _store_native if NATIVE else _store_bits
