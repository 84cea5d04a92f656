"""Where a tensor lies in a model file: name, shape, format and byte range."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from .int_blocks import INT_BLOCKS

# Ids that files of 2023-24 may still carry; ggml.h lists them as removed.
_REMOVED = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8"}

_INT = {block.type_id: block.name for block in INT_BLOCKS.values()}  # no file names these


def type_name(type_id: int) -> str:
    """The ggml name of a format id, also of removed ones; "type 99" when nobody knows it."""
    try:
        return GGMLQuantizationType(type_id).name
    except ValueError:
        return _REMOVED.get(type_id) or _INT.get(type_id, f"type {type_id}")


def block_size(type_id: int) -> tuple[int, int] | None:
    """(values, bytes) of one block of a format id, or None when the id is unknown or removed."""
    try:
        return GGML_QUANT_SIZES[GGMLQuantizationType(type_id)]
    except (ValueError, KeyError):
        return None


@dataclass(frozen=True)
class Tensor:
    """One tensor of a container. `shape` is in NumPy order: the last axis is contiguous.

    `offset` counts bytes from the start of shard number `shard`. `nbytes` is 0 when the format
    is unknown: such a tensor can be listed but not read.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    nbytes: int
    shard: int = 0

    @property
    def elems(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def cols(self) -> int:
        """Values per row."""
        return self.shape[-1]

    @property
    def format_name(self) -> str:
        """Name of the format, for messages and tables."""
        return type_name(self.type_id)
