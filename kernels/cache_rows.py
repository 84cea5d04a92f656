"""Rows of the key and value caches in NumPy: four types, as the shaders store them.

A cache of n_ctx positions with `width` values each is (n_ctx, width) of float16 or float32, or
(n_ctx,) records of quantized groups of 32 values: all quants "q" of a row, then its float16
scales "d", padded to 16 bytes (shaders/cache.glsl). Groups run through a row whatever the head
size; the last one may be partly padding.

Position p lies in row p, or in row p mod r of a cache of r rows that is a ring ("ring" among the
parameters of a kernel; 0: it is none).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .kernel import Array, Case, Params, Shaped

Floats = npt.NDArray[np.float32]
GROUP = 32
TYPES = ("F16", "F32", "Q8_0", "Q4_0")  # in the order of the numbers in shaders/cache.glsl
QUANTIZED = ("Q8_0", "Q4_0")
FLOATS: dict[str, Any] = {"F16": np.float16, "F32": np.float32}


def row_type(kind: str, width: int) -> np.dtype[Any]:
    """The record of one quantized row: int8 quants, or pairs of nibbles, the first value low."""
    groups = -(-width // GROUP)
    scales = ("d", np.float16, (-(-groups // 8) * 8,))
    if kind == "Q8_0":
        return np.dtype([("q", np.int8, (groups * GROUP,)), scales])
    return np.dtype([("q", np.uint8, (groups * GROUP // 2,)), scales])


def row_bytes(kind: str, width: int) -> int:
    """Bytes from row to row."""
    return int(width * np.dtype(FLOATS[kind]).itemsize if kind in FLOATS
               else row_type(kind, width).itemsize)  # fmt: skip


def array_type(kind: str, shape: Sequence[int]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of the array that stands for a cache of `shape` (n_ctx, width)."""
    if kind in FLOATS:
        return tuple(shape), np.dtype(FLOATS[kind])
    return (shape[0],), row_type(kind, shape[1])


def kind_of(cache: Array) -> str:
    """The type of a cache array."""
    if cache.dtype.names:
        return "Q8_0" if cache.dtype["q"].base == np.int8 else "Q4_0"
    return "F16" if cache.dtype == np.float16 else "F32"


def quantize(kind: str, x: Floats) -> tuple[Array, Array]:
    """Groups x (n, 32) as int8 quants (n, 32), for Q4_0 plus 8, and float16 scales (n,).

    Q8_0: scale = largest magnitude / 127. Q4_0: the value of largest magnitude becomes -8.
    (quantize_row_q8_0_ref and quantize_row_q4_0_ref of ggml-quants.c; halves round to even here,
    and of two values of equal magnitude the positive one is taken.) A group with a value that is
    not finite gets the scale NaN.
    """
    finite: Any = np.isfinite(x).all(axis=1)
    x = np.where(finite[:, None], x, np.float32(0))
    most, least = x.max(axis=1), x.min(axis=1)
    if kind == "Q8_0":
        scale = np.maximum(most, -least) / np.float32(127)
    else:
        scale = np.where(most > -least, most, least) / np.float32(-8)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale != 0, np.float32(1) / scale, 0).astype(np.float32)[:, None]
    if kind == "Q8_0":
        q = np.rint(x * inverse)
    else:
        q = np.minimum((x * inverse + np.float32(8.5)).astype(np.int32), 15)
    return q.astype(np.int8), np.where(finite, scale, np.nan).astype(np.float16)


def encode(kind: str, x: Floats) -> Array:
    """Rows x (n, width) as a cache array of n rows."""
    if kind in FLOATS:
        return x.astype(FLOATS[kind])
    n, width = x.shape
    out: Array = np.zeros(n, row_type(kind, width))
    groups = -(-width // GROUP)
    padded = np.zeros((n, groups * GROUP), np.float32)
    padded[:, :width] = x
    q, d = quantize(kind, padded.reshape(-1, GROUP))
    q = q.reshape(n, -1)
    out["q"] = q if kind == "Q8_0" else q[:, ::2] | (q[:, 1::2] << 4).view(np.uint8)
    out["d"][:, :groups] = d.reshape(n, groups)
    return out


def decode(rows: Array, width: int) -> Floats:
    """The values of cache rows: float32 (n, width)."""
    kind = kind_of(rows)
    if kind in FLOATS:
        return rows.astype(np.float32)
    q = rows["q"].astype(np.int16)
    if kind == "Q4_0":
        q = np.stack([q & 15, q >> 4], axis=-1).reshape(len(rows), -1) - 8
    scales = np.repeat(rows["d"].astype(np.float32), GROUP, axis=1)
    out: Floats = q[:, :width] * scales[:, :width]
    return out


def rows_of(first: int, stop: int, ring: int) -> Any:
    """The rows of positions first … stop - 1, as an index."""
    return np.arange(first, stop) % ring if ring else slice(first, stop)


def put(cache: Array, first: int, x: Floats, ring: int = 0) -> None:
    """Store rows x (n, width) of the positions from `first` on."""
    cache[rows_of(first, first + len(x), ring)] = encode(kind_of(cache), x)


def seen(
    cache: Array, first: int, stop: int, ring: int, heads: int, head_dim: int
) -> Floats:
    """Positions first … stop - 1 of a cache: float32 (positions, heads, head_dim)."""
    rows = decode(cache[rows_of(first, stop, ring)], heads * head_dim)
    return rows.reshape(stop - first, heads, head_dim)


def comparable(value: Array) -> Array:
    """Values of a cache array for comparisons; other arrays as they are. Padding counts too."""
    if not value.dtype.names:
        return value
    per = 1 if kind_of(value) == "Q8_0" else 2
    return decode(value.reshape(-1), per * value.dtype["q"].shape[0])


def build(k: Shaped, v: Shaped, float16: str = "F16") -> str:
    """The build for two caches: the one for float16, or ANY with `types` as constants."""
    return float16 if k.format_name == v.format_name == "F16" else "ANY"


def constants(k: Shaped, v: Shaped, params: Params) -> tuple[int, int, int]:
    """K_TYPE and V_TYPE, which only the ANY build has, and RING."""
    return TYPES.index(k.format_name), TYPES.index(v.format_name), int(params.get("ring", 0))


MIXES = (  # types of k and v in the cases of kernels
    ("F16", "F16"), ("F32", "F32"), ("Q8_0", "Q8_0"), ("Q4_0", "Q4_0"), ("Q8_0", "F16"),
    ("F16", "Q4_0"), ("Q4_0", "Q8_0"), ("F32", "F16"), ("F16", "F32"), ("Q8_0", "F32"),
    ("F32", "Q4_0"),
)  # fmt: skip


def mixed(shapes: Sequence[Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    """(types, shape) of cases: every shape with float16 caches, then every other mix with one."""
    for shape in shapes:
        yield MIXES[0], shape
    for i, mix in enumerate(MIXES[1:]):
        yield mix, shapes[i % len(shapes)]


def ring_operands(rng: np.random.Generator, case: Case, ring: int) -> Case:
    """The same case over rings of so many rows, their contents new."""
    k, v = case.operands["k"], case.operands["v"]
    assert isinstance(k, np.ndarray) and isinstance(v, np.ndarray)
    caches = {n: c[rng.integers(0, len(c), ring)] for n, c in (("k", k), ("v", v))}
    return replace(
        case, name=f"{case.name} ring={ring}", operands={**case.operands, **caches},
        params={**case.params, "ring": ring},
    )  # fmt: skip


def random_caches(
    rng: np.random.Generator, mix: tuple[str, str], rows: int, width: int
) -> dict[str, Array]:
    """Operands k and v of a case."""
    return {
        name: encode(kind, rng.standard_normal((rows, width)).astype(np.float32))
        for name, kind in zip("kv", mix, strict=True)
    }
