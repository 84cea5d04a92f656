"""The compiled kernels: which exist, the order of their argument words, and their compilation.

Importing this module imports Numba (half a second), so only the CPU executor does. A kernel is
compiled when a plan first needs it and then loaded from disk (fast_cache.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from numba import cfunc, types

from . import fast_attention as attention
from . import fast_experts as experts
from . import fast_experts_words as experts_words
from . import fast_heads as heads
from . import fast_matmul as matmul
from . import fast_matvec as matvec
from . import fast_mla as mla
from . import fast_rope as rope
from . import fast_rows as rows
from . import fast_sample as sample
from .fast_formats import NUMBERS
from .fast_simd import LANES
from .fast_team import replay
from .kernel import Params

SIGNATURE = types.void(*[types.int64] * 4)


@dataclass(frozen=True)
class Fast:
    """A compiled kernel. `words` names its argument words in order: operands (the address of a
    buffer, or of a weight's table), parameters, "k.type", "k.row" and "k.rows" (type of the cache
    k, an index of cache_rows.TYPES, its bytes per row and its rows), and "scratch" with
    "scratch_bytes" per member. `make` takes the number of `weight`'s format."""

    make: Callable[..., Any]
    words: tuple[str, ...]
    weight: str = ""
    scratch: Callable[[Params], int] = lambda params: 0  # float32 values per member


def _words(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _attention_scratch(tokens: Callable[[int], int]) -> Callable[[Params], int]:
    def floats(p: Params) -> int:
        group = int(p["n_head"]) // int(p["n_head_kv"])
        return attention.scratch_floats(int(p["head_dim"]), group, tokens(group))

    return floats


_VEC = _words("x w step cols y rows y_off")
_NORM_VEC = (*_VEC, *_words("g eps scratch scratch_bytes"))
_MUL = (*_VEC, *_words("x_stride y_stride scratch scratch_bytes"))
_CACHES = _words("k.type k.row v.type v.row k.rows scratch scratch_bytes")
_ATTEND = _words("step n_head n_head_kv head_dim scale window softcap") + _CACHES
_ROPE = _words("qkv rope k v step n_head n_head_kv head_dim n_rot") + _CACHES


_HEADS = _words(
    "qkv rope bias g y k v step n_head n_head_kv head_dim n_rot apart q_group k_group v_group eps "
    "writes"
) + _CACHES


def _heads_scratch(p: Params) -> int:
    return (int(p["n_head"]) + 2 * int(p["n_head_kv"])) * int(p["head_dim"])


def _norm_scratch(p: Params) -> int:
    return int(p["cols"]) + 2 * LANES


def _row_scratch(p: Params) -> int:
    return int(p["n_head_kv"]) * int(p["head_dim"])


def _mul_scratch(p: Params) -> int:
    return matmul.scratch_floats(int(p["cols"]))


def _query_scratch(p: Params) -> int:
    head, width = int(p["nope"]) + int(p["n_rot"]), int(p["rank"]) + int(p["n_rot"])
    return max(int(p["cols"]) + head, width)


FAST: dict[str, Fast] = {
    "embed": Fast(rows.embed, _words("tokens w x step n_embd row0 rows scale"), "w"),
    "rmsnorm": Fast(rows.rmsnorm, _words("x g y step n_embd eps")),
    "swiglu": Fast(rows.swiglu, _words("gu y step n_ff")),
    "rope_kv": Fast(rope.rope_kv, _ROPE, scratch=_row_scratch),
    "rope_kv_halves": Fast(rope.rope_kv_halves, _ROPE, scratch=_row_scratch),
    "matvec": Fast(matvec.matvec, _VEC, "w"),
    "matvec_add": Fast(matvec.matvec_add, _VEC, "w"),
    "norm_matvec": Fast(matvec.norm_matvec, _NORM_VEC, "w", _norm_scratch),
    "norm_matvec_swiglu": Fast(matvec.norm_matvec_swiglu, _NORM_VEC, "w", _norm_scratch),
    "norm_matvec_geglu": Fast(matvec.norm_matvec_geglu, _NORM_VEC, "w", _norm_scratch),
    "matmul": Fast(matmul.matmul, _MUL, "w", _mul_scratch),
    "matmul_add": Fast(matmul.matmul_add, _MUL, "w", _mul_scratch),
    "experts_swiglu": Fast(
        experts.experts_swiglu, _words(experts_words.SWIGLU), "w", _norm_scratch
    ),
    "experts_down": Fast(experts.experts_down, _words(experts_words.DOWN), "w"),
    "experts_matmul": Fast(
        experts.experts_matmul, _words(experts_words.MATMUL), "w", _mul_scratch
    ),
    "mla_query": Fast(mla.mla_query, _words(mla.QUERY), "w", _query_scratch),
    "mla_values": Fast(mla.mla_values, _words(mla.VALUES), "w", lambda p: int(p["rank"])),
    "geglu": Fast(rows.geglu, _words("gu y step n_ff")),
    "norm_rope_kv": Fast(heads.norm_rope_kv, _HEADS, scratch=_heads_scratch),
    "norm_add": Fast(rows.norm_add, _words("x g y step cols groups eps scale")),
    "bias_add": Fast(rows.bias_add, _words("y b step cols rows")),
    "softcap": Fast(rows.softcap, _words("y step cols rows cap")),
    "gelu_mul": Fast(rows.gelu_mul, _words("y e step cols y_stride e_stride e_off")),
    "sample_scan": Fast(
        sample.sample_scan, _words("logits settings counts step keys best n_vocab group")
    ),
    "attention": Fast(
        attention.attention, (*_words("qkv k v part"), *_ATTEND, "splits"),
        scratch=_attention_scratch(lambda group: 1),
    ),
    "attention_combine": Fast(
        attention.attention_combine, _words("part y n_head head_dim splits")
    ),
    "attention_prefill": Fast(
        attention.attention_prefill, (*_words("qkv k v y"), *_ATTEND),
        scratch=_attention_scratch(attention.query_tokens),
    ),
}  # fmt: skip


_waiting: list[Callable[[], None]] = []


def on_compile(tell: Callable[[], None]) -> None:
    """Call `tell` as soon as a kernel had to be compiled, because more of them will follow."""
    _waiting[:] = [tell]


@cache
def compiled(name: str, format_name: str) -> int:
    """Address of f(args, team, me, members) for a weight format, "" where there is none."""
    fast = FAST[name]
    source = fast.make(NUMBERS[format_name]) if fast.weight else fast.make()
    made: Any = cfunc(SIGNATURE, cache=True, error_model="numpy")(source)
    _KEPT.append(made)
    if _waiting and not made.cache_hits:
        _waiting.pop()()
    return int(made.address)


_KEPT: list[Any] = []  # compiled code lives as long as these objects


@cache
def replayer() -> Callable[[int, int, int, int, int, int], None]:
    """The compiled `replay`, which runs without the interpreter lock."""
    from numba import njit

    made: Any = njit(types.void(*[types.int64] * 6), cache=True, nogil=True, error_model="numpy")
    run: Callable[[int, int, int, int, int, int], None] = made(replay)
    return run
