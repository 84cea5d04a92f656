"""A model as a list of dispatches: the one plan that both executors run.

`Buf` is an activation, cache, step or table buffer; `Weight` is one matrix or several stacked by
rows (q, k and v of a layer, say); `Dispatch` is one kernel with its operands by binding name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..kernels import cache_rows
from .blocks import Format, Matrix

if TYPE_CHECKING:
    from ..kernels.kernel import Kernel


class Role(enum.Enum):
    """What a buffer is for; executors allocate by it."""

    ACTIVATION = "activation"  # device only
    CACHE = "cache"  # one layer's keys or values; lives in a cache arena
    STATE = "state"  # device only, kept from step to step, cleared at the start of a generation
    INPUT = "input"  # written by the host before a sequence runs
    OUTPUT = "output"  # read by the host after a sequence has run
    CONSTANT = "constant"  # filled once at load time


class Phase(enum.Enum):
    """Where time goes, in the words of the profile table."""

    EMBED = "embed"
    QKV = "qkv"
    ATTENTION = "attention"
    OUT = "output projection"
    FFN = "ffn"
    ROUTER = "router"
    EXPERTS = "experts"
    SHARED = "shared expert"
    Q_PREP = "q-prep"
    CORE = "attention core"
    HEAD = "head"
    SAMPLING = "sampling"


@dataclass(frozen=True)
class Buf:
    """A buffer of `shape`; dtype "F32", "U32" or "F16" (two values per word), for caches also
    "Q8_0" and "Q4_0" (kernels/cache_rows.py)."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "F32"
    role: Role = Role.ACTIVATION

    @property
    def rows(self) -> int:
        """Leading dimension."""
        return self.shape[0]

    @property
    def cols(self) -> int:
        """Elements per row."""
        return self.elems // self.shape[0]

    @property
    def elems(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def words(self) -> int:
        """32-bit words."""
        if self.dtype in cache_rows.QUANTIZED:
            return self.rows * cache_rows.row_bytes(self.dtype, self.cols) // 4
        return -(-self.elems // 2) if self.dtype == "F16" else self.elems

    @property
    def format_name(self) -> str:
        """The dtype, under the name that launches use for weights and buffers alike."""
        return self.dtype


@dataclass(frozen=True)
class Weight:
    """Matrices of one format, stacked by rows; rows of the first have `cols` values, and so have
    those of the others where a kernel does not know better. `name` is unique in the model."""

    name: str
    parts: tuple[Matrix, ...]

    @property
    def fmt(self) -> Format:
        """The format that all parts share."""
        return self.parts[0].fmt

    @property
    def rows(self) -> int:
        """Rows of all parts together, in rows of the first's."""
        return sum(m.rows * m.cols for m in self.parts) // self.cols

    @property
    def cols(self) -> int:
        """Values per row."""
        return self.parts[0].cols

    @property
    def format_name(self) -> str:
        """Name of the format."""
        return self.fmt.name


Operand = Buf | Weight


@dataclass(frozen=True)
class Dispatch:
    """One kernel launch. `operands` are by binding name, `params` by push-word name."""

    kernel: Kernel
    operands: Mapping[str, Operand]
    params: Mapping[str, int | float]
    phase: Phase
    label: str = ""  # "blk.3.attn_q" and such, for error messages


@dataclass(frozen=True)
class Plan:
    """Dispatches for a batch of up to `rows` tokens."""

    rows: int
    dispatches: tuple[Dispatch, ...]
    name: str = ""
    constants: Mapping[str, object] = field(default_factory=dict)
