"""Formats of int containers: which one the bytes of a tensor and of its scales amount to.

`NAME` (uint8, packed) and `NAME.qs` (scales) hold O rows of I inputs. No file says which format it
is but by these byte counts, and perhaps a stamp: `colibri.fmt` in a shard's metadata, a JSON object
of tensor name -> format name. Names are those of the registry docs/FORMATS.md of JustVugg/colibri.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

GROUPS = (32, 64, 128)  # group sizes of int4 in use; powers of two never give equal counts
SUPER = 256  # inputs of a lattice block
FP8_BLOCK = 128
STAMP = "colibri.fmt"
SHAPES = "kompute_llm.shapes"  # metadata key: JSON object of tensor name -> logical shape
STAMP_LIMIT = 4096  # stamped tensors that other readers of the format take
E8M0 = ("U8", "F8_E8M0")  # scales that are powers of two
FLOAT = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class IntKind:
    """A format, with its group size where it has groups. `number` is the one of design tables."""

    name: str
    number: str
    group: int = 0  # inputs per scale; 0: one scale per row, or none

    @property
    def label(self) -> str:
        """The name that the command line uses: "int4-g64"."""
        base = self.name.removesuffix("-row")
        return f"int4-g{self.group}" if self.name == "int4-grouped" else base


@dataclass(frozen=True)
class Rule:
    """Byte arithmetic of one format: weight bytes and number of scales, as formulas and text."""

    kind: IntKind
    weights: Callable[[int, int], int]
    scales: Callable[[int, int], int]
    weights_text: str
    scales_text: str
    power_of_two: bool = False  # scales may be E8M0 bytes
    float_scales: bool = True
    stamp_only: bool = False  # never inferred: the same bytes mean something more usual


def up(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def _int4(o: int, i: int) -> int:
    return o * up(i, 2)


def _grouped(gs: int) -> Rule:
    return Rule(IntKind("int4-grouped", "4", gs), _int4, lambda o, i: o * up(i, gs),
                "O*ceil(I/2)", f"O*ceil(I/{gs})")  # fmt: skip


def _asymmetric(gs: int) -> Rule:
    return Rule(IntKind("int4-grouped-asym", "6a", gs), _int4, lambda o, i: 2 * o * up(i, gs),
                "O*ceil(I/2)", f"2*O*ceil(I/{gs})", stamp_only=True)  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule(IntKind("int8-row", "1"), lambda o, i: o * i, lambda o, i: o, "O*I", "O"),
    Rule(IntKind("int4-row", "2"), _int4, lambda o, i: o, "O*ceil(I/2)", "O"),
    Rule(IntKind("int2-row", "3"), lambda o, i: o * up(i, 4), lambda o, i: o, "O*ceil(I/4)", "O"),
    *(_grouped(gs) for gs in GROUPS),
    Rule(IntKind("int3-g64", "5", 64), lambda o, i: o * 24 * up(i, 64),
         lambda o, i: o * up(i, 64), "O*24*ceil(I/64)", "O*ceil(I/64)"),
    *(_asymmetric(gs) for gs in GROUPS),
    Rule(IntKind("e8-iq3-lattice", "6b", SUPER), lambda o, i: o * 98 * up(i, SUPER),
         lambda o, i: 1, "O*98*ceil(I/256)", "1 (the tag 6.0)"),
    Rule(IntKind("mxfp4", "7", 32), _int4, lambda o, i: o * up(i, 32),
         "O*ceil(I/2)", "O*ceil(I/32)", power_of_two=True, float_scales=False),
    Rule(IntKind("fp8-e4m3-b128", "8"), lambda o, i: o * i,
         lambda o, i: up(o, FP8_BLOCK) * up(i, FP8_BLOCK),
         "O*I", "ceil(O/128)*ceil(I/128)", power_of_two=True),
)  # fmt: skip
NAMES = {"f32": IntKind("f32", "0")} | {r.kind.name: r.kind for r in RULES}


class FormatProblem(Exception):
    """No format, or more than one, fits; the text shows the arithmetic."""


@dataclass(frozen=True)
class Sizes:
    """What a file holds of one tensor: bytes of weights; number, dtype and shape of scales."""

    rows: int
    cols: int
    nbytes: int
    scales: int
    dtype: str = "F32"
    shape: tuple[int, ...] = ()


@lru_cache(4096)  # experts are alike
def infer(s: Sizes, stamp: str | None = None) -> IntKind:
    """The format of a tensor. Raises FormatProblem when sizes fit none, or several that decode
    differently and no stamp decides, or not the stamped one."""
    if stamp is not None and stamp not in NAMES:
        raise FormatProblem(f"the stamp {stamp!r:.60} names no known format; known: "
                            f"{', '.join(NAMES)}")  # fmt: skip
    if s.rows < 1 or s.cols < 1:
        raise FormatProblem(f"O = {s.rows}, I = {s.cols}: expected at least one row and input")
    fitting = list(_fitting(s, stamp))
    if stamp is not None:
        named = [r for r in fitting if r.kind.name == stamp or _same_as(r.kind, stamp, s)]
        if not named:
            raise FormatProblem(f"is stamped {stamp}, but {_have(s)}; {_expected(s, stamp)}")
        return named[0].kind
    if not fitting:
        raise FormatProblem(f"{_have(s)}, which fits no format: {_expected(s, None)}")
    if len(fitting) > 1:
        names = " and ".join(_arithmetic(r, s) for r in fitting)
        raise FormatProblem(f"{_have(s)}, which is ambiguous: {names}; only a stamp "
                            f"({STAMP}) could tell")  # fmt: skip
    return fitting[0].kind


def _fitting(s: Sizes, stamp: str | None) -> Iterator[Rule]:
    for r in RULES:
        if r.weights(s.rows, s.cols) != s.nbytes or r.scales(s.rows, s.cols) != s.scales:
            continue
        if r.kind.name == "int4-grouped" and r.kind.group >= s.cols:
            continue  # one group per row: int4-row says the same
        pairs = len(s.shape) == 3 and s.shape[-1] == 2  # (O, groups, scale and zero point)
        if pairs != r.stamp_only and stamp is None:
            continue
        if r.stamp_only and stamp not in (None, r.kind.name):
            continue
        named = stamp == r.kind.name
        takes_bytes, takes_floats = r.power_of_two, r.float_scales or named
        if (s.dtype in E8M0 and takes_bytes) or (s.dtype in FLOAT and takes_floats):
            yield r


def _same_as(kind: IntKind, stamp: str, s: Sizes) -> bool:
    """A group that spans the row is one scale per row, under whatever name."""
    return kind.name == "int4-row" and stamp == "int4-grouped" and s.scales == s.rows


def _have(s: Sizes) -> str:
    return (f"O = {s.rows} rows of I = {s.cols} inputs have {s.nbytes} bytes and {s.scales} "
            f"{s.dtype} scales")  # fmt: skip


def _arithmetic(r: Rule, s: Sizes) -> str:
    return (f"{r.kind.label} ({r.weights_text} = {r.weights(s.rows, s.cols)} bytes, "
            f"{r.scales_text} = {r.scales(s.rows, s.cols)} scales)")  # fmt: skip


def _expected(s: Sizes, name: str | None) -> str:
    rules = [r for r in RULES if (not r.stamp_only if name is None else r.kind.name == name)]
    if not rules:
        return f"{name} has no scales at all"
    return "expected " + ", or ".join(_arithmetic(r, s) for r in rules)
