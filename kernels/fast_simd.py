"""Vectors for Numba: the few types and operations that the fast CPU kernels are written in.

`Vec` is an LLVM vector as a Numba type: 16 lanes, which LLVM splits where registers are shorter
(two of AVX2, four of NEON). Memory is addressed by plain int64 addresses: a compiled kernel gets
one address of argument words and nothing else. Operators between vectors, or a vector and a
scalar, work lane by lane; `a * b + c` becomes a fused multiply-add.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.core.cgutils
import numba.extending
from llvmlite import ir
from numba import types

from .fast_cache import use_cache

use_cache()  # before the first function is decorated
cgutils: Any = numba.core.cgutils
extending: Any = numba.extending
F = TypeVar("F", bound=Callable[..., Any])
LANES = 16

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
FLOAT, HALF = ir.FloatType(), ir.HalfType()
_ELEMENTS = {"u8": I8, "i8": I8, "u16": I16, "i32": I32, "f32": FLOAT, "f16": HALF}


def device(f: F) -> F:
    """Decorator: a function that kernels call; it is inlined."""
    made: Any = numba.njit(nogil=True, forceinline=True, error_model="numpy")(f)
    return cast(F, made)


def routine(f: F) -> F:
    """Decorator: a larger function that kernels call; the compiler decides about inlining."""
    made: Any = numba.njit(nogil=True, error_model="numpy")(f)
    return cast(F, made)


class Vec(types.Type):
    """`n` lanes of `elem`, one of "u8", "i8", "u16", "i32", "f32", "f16"."""

    def __init__(self, elem: str, n: int = LANES) -> None:
        self.elem, self.n = elem, n
        super().__init__(name=f"Vec({elem}x{n})")

    @property
    def llvm(self) -> Any:
        """The LLVM type."""
        return ir.VectorType(_ELEMENTS[self.elem], self.n)


_PrimitiveModel: Any = extending.models.PrimitiveModel


@extending.register_model(Vec)
class VecModel(_PrimitiveModel):  # type: ignore[misc]
    """In registers and in memory a Vec is its LLVM vector."""

    def __init__(self, manager: Any, kind: Vec) -> None:
        super().__init__(manager, kind, kind.llvm)


U8, S8, U16, S32, F32, F16 = (Vec(e) for e in ("u8", "i8", "u16", "i32", "f32", "f16"))


def op(result: Any, *wanted: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: `build(builder, *values)` emits the code of an intrinsic of those types."""

    def wrap(build: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            made = build(builder, *args)
            return context.get_dummy_value() if result is types.void else made

        # Numba reads the argument names of the function that it is given
        names = ", ".join(f"a{i}" for i in range(len(wanted)))
        scope = {"sig": result(*wanted), "generate": generate}
        exec(f"def typed(context, {names}): return sig, generate", scope)
        typed: Any = scope["typed"]
        typed.__name__ = build.__name__
        return extending.intrinsic(typed)

    return wrap


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    """An int64 address as a pointer to an LLVM type."""
    return builder.inttoptr(address, kind.as_pointer())


def call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call an LLVM intrinsic or a C function by name."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def splat_value(builder: Any, value: Any, n: int) -> Any:
    """A vector with `value` in every lane."""
    kind = ir.VectorType(value.type, n)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    zeros = ir.Constant(ir.VectorType(I32, n), [0] * n)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)


@op(F32, types.float32)
def splat(b: Any, value: Any) -> Any:
    """The value in every lane."""
    return splat_value(b, value, LANES)


@op(S32, types.int64)
def splat_i32(b: Any, value: Any) -> Any:
    """The low 32 bits in every lane."""
    return splat_value(b, b.trunc(value, I32), LANES)


@op(S32, S32)
def lane_bits(b: Any, bits: Any) -> Any:
    """Bit i of lane i, as 0 or 1."""
    i32s = bits.type
    return b.and_(
        b.lshr(bits, ir.Constant(i32s, list(range(LANES)))), ir.Constant(i32s, [1] * LANES)
    )


@op(S32, U8)
def widen(b: Any, value: Any) -> Any:
    """Bytes, unsigned, as int32."""
    return b.zext(value, S32.llvm)


@op(F32, S32)
def to_f32(b: Any, value: Any) -> Any:
    """int32 lanes as float32."""
    return b.sitofp(value, F32.llvm)


@op(types.float32, F32)
def lane_sum(b: Any, value: Any) -> Any:
    """Sum of all lanes, in a tree."""
    kind = ir.FunctionType(FLOAT, [FLOAT, F32.llvm])
    name = f"llvm.vector.reduce.fadd.v{LANES}f32"
    f = cgutils.get_or_insert_function(b.module, kind, name)
    return b.call(f, [FLOAT(-0.0), value], fastmath=("reassoc",))


@op(types.float32, F32)
def lane_max(b: Any, value: Any) -> Any:
    """Largest lane."""
    return call(b, f"llvm.vector.reduce.fmax.v{LANES}f32", FLOAT, value)


@op(F32, F32, F32, F32)
def clamp(b: Any, x: Any, low: Any, high: Any) -> Any:
    """Lane by lane into [low, high]; a NaN stays one."""
    x = call(b, f"llvm.maximum.v{LANES}f32", F32.llvm, x, low)
    return call(b, f"llvm.minimum.v{LANES}f32", F32.llvm, x, high)


@op(F32, F32)
def nearest(b: Any, x: Any) -> Any:
    """Round to the nearest integer, ties to even."""
    return call(b, f"llvm.rint.v{LANES}f32", F32.llvm, x)


@op(F32, F32)
def power_of_two(b: Any, x: Any) -> Any:
    """2^x of whole x in -126 … 127, by writing the exponent field."""
    n = b.fptosi(x, S32.llvm)
    biased = b.add(n, ir.Constant(S32.llvm, [127] * LANES))
    return b.bitcast(b.shl(biased, ir.Constant(S32.llvm, [23] * LANES)), F32.llvm)


@op(types.int64, types.float32)
def float_bits(b: Any, value: Any) -> Any:
    """The 32 bits of a float32, unsigned."""
    return b.zext(b.bitcast(value, I32), I64)


# operator: (LLVM builder method for floats, for integers)
_OPERATORS: dict[Any, tuple[str, str]] = {
    operator.add: ("fadd", "add"), operator.sub: ("fsub", "sub"), operator.mul: ("fmul", "mul"),
    operator.truediv: ("fdiv", ""), operator.and_: ("", "and_"), operator.or_: ("", "or_"),
    operator.rshift: ("", "lshr"), operator.lshift: ("", "shl"),
}  # fmt: skip


def _result(x: Any, y: Any) -> Any:
    if isinstance(x, Vec) and (y == x or isinstance(y, types.Number)):
        return x
    return None


def _register(what: Any, float_name: str, int_name: str) -> None:
    extending.type_callable(what)(lambda context: _result)

    def emit(context: Any, b: Any, sig: Any, args: Any) -> Any:
        vec, other = sig.args
        x, y = args
        elem = vec.llvm.element
        if not isinstance(other, Vec):
            scalar = types.float32 if elem is FLOAT else types.int32
            y = context.cast(b, y, other, scalar)
            y = splat_value(b, y if elem in (FLOAT, I32) else b.trunc(y, elem), vec.n)
        if elem is FLOAT:  # contract: multiply and add may fuse
            return getattr(b, float_name)(x, y, flags=("contract",))
        return getattr(b, int_name)(x, y)

    for right in (Vec, types.Number):
        extending.lower_builtin(what, Vec, right)(emit)


for _what, _names in _OPERATORS.items():
    _register(_what, *_names)
