"""What `convert` can write: how a format encodes rows, and how far a value may be off.

A target stores a matrix as streams, each with a fixed number of bytes per row: packed quants and
scales in an int container, one stream in GGUF. Parts of a model (experts, attention, …) may take
different targets; norms, routers and vectors stay float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from . import int_codec
from .blocks import Bytes, Floats
from .errors import UsageError
from .int_formats import GROUPS, NAMES, IntKind
from .int_matrix import float_bytes
from .tensor import Tensor

GGUF_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
FLOATS = ("f32", "f16", "bf16")
PARTS = ("experts", "shared", "attention", "head", "rest", "kept")
# names (within a layer) of small matrices that decide too much to be rounded
KEPT = ("ffn_gate_inp", "ssm_", "rope_", "exp_probs", "conv1d", "attn_sinks", "token_types")
Streams = list[Bytes]


@dataclass(frozen=True)
class Stream:
    """A tensor that a target writes: what is added to the name, dtype, shape, bytes per row."""

    suffix: str
    dtype: str
    shape: tuple[int, ...]
    row_bytes: int


class Target(ABC):
    """A format that rows are converted to. `name` is the one of the command line."""

    name: str

    @abstractmethod
    def streams(self, shape: tuple[int, ...]) -> list[Stream]:
        """What is written for a tensor of that shape."""

    @abstractmethod
    def encode(self, x: Floats) -> Streams:
        """Rows (n, cols) as bytes (n, row_bytes) of every stream."""

    @abstractmethod
    def decode(self, streams: Streams, cols: int) -> Floats:
        """The inverse, but for rounding."""

    @abstractmethod
    def bound(self, x: Floats, streams: Streams) -> Floats:
        """How far decoded values may be off, broadcastable to (n, cols)."""


class IntTarget(Target):
    """An int format of a safetensors container."""

    def __init__(self, kind: IntKind) -> None:
        self.kind, self.name = kind, kind.label

    def streams(self, shape: tuple[int, ...]) -> list[Stream]:
        rows, cols = int(np.prod(shape[:-1])), shape[-1]
        packed, scales = int_codec.row_bytes(self.kind, cols), int_codec.row_scales(self.kind, cols)
        return [Stream("", "U8", (rows, packed), packed),
                Stream(".qs", "F32", (rows, scales), 4 * scales)]  # fmt: skip

    def encode(self, x: Floats) -> Streams:
        packed, scales = int_codec.quantize(self.kind, x)
        return [packed, scales.view(np.uint8)]

    def decode(self, streams: Streams, cols: int) -> Floats:
        scales = np.ascontiguousarray(streams[1]).view(np.float32)
        return int_codec.dequantize(self.kind, streams[0], scales, cols)

    def bound(self, x: Floats, streams: Streams) -> Floats:
        scales = np.ascontiguousarray(streams[1]).view(np.float32)
        cols = x.shape[1]
        each: Floats = np.repeat(scales, self.kind.group or cols, axis=1)[:, :cols]
        return each * np.float32(0.5001)


class FloatTarget(Target):
    """Plain floats of a safetensors container."""

    def __init__(self, name: str) -> None:
        self.name, self._dtype = name, name.upper()

    def streams(self, shape: tuple[int, ...]) -> list[Stream]:
        size = 4 if self._dtype == "F32" else 2
        return [Stream("", self._dtype, shape, size * shape[-1])]

    def encode(self, x: Floats) -> Streams:
        return [float_bytes(x, self._dtype)]

    def decode(self, streams: Streams, cols: int) -> Floats:
        raw = np.ascontiguousarray(streams[0]).reshape(-1)
        if self._dtype == "BF16":
            return int_codec.bf16(raw).reshape(-1, cols)
        dtype = np.float32 if self._dtype == "F32" else np.float16
        return raw.view(dtype).astype(np.float32).reshape(-1, cols)

    def bound(self, x: Floats, streams: Streams) -> Floats:
        share = {"F32": 0.0, "F16": 2.0**-11, "BF16": 2.0**-8}[self._dtype]
        return np.abs(x) * np.float32(share) + np.float32(2.0**-24 if share else 0.0)


class GgufTarget(Target):
    """A format of GGUF, encoded by gguf-py."""

    def __init__(self, name: str) -> None:
        self.kind = GGMLQuantizationType[name]
        self.name = name

    def streams(self, shape: tuple[int, ...]) -> list[Stream]:
        elems, size = GGML_QUANT_SIZES[self.kind]
        return [Stream("", self.name, shape, shape[-1] // elems * size)]

    def encode(self, x: Floats) -> Streams:
        raw = np.ascontiguousarray(quantize(np.ascontiguousarray(x), self.kind)).view(np.uint8)
        return [raw.reshape(len(x), -1)]

    def decode(self, streams: Streams, cols: int) -> Floats:
        raw = np.ascontiguousarray(streams[0])
        return np.asarray(dequantize(raw, self.kind), np.float32).reshape(-1, cols)

    def bound(self, x: Floats, streams: Streams) -> Floats:
        if self.name == "F32":
            return np.zeros(1, np.float32)
        if self.name in ("F16", "BF16"):
            share = 2.0**-11 if self.name == "F16" else 2.0**-8
            return np.abs(x) * np.float32(share) + np.float32(2.0**-24)
        groups = x.reshape(len(x), -1, 32)
        # a step is at most the span of the group over the number of steps; symmetric formats
        # take -8 or -16 for the largest magnitude, so the other sign ends one step earlier
        steps = {"Q8_0": 127, "Q4_0": 8, "Q4_1": 15, "Q5_0": 16, "Q5_1": 31}[self.name]
        most = np.abs(groups).max(axis=2)
        if self.name.endswith("_1"):
            most = groups.max(axis=2) - groups.min(axis=2)
        share = {"Q8_0": 0.5, "Q4_1": 0.5, "Q5_1": 0.5}.get(self.name, 1.0)
        rounding = np.abs(groups).max(axis=2) * np.float32(2.0**-9)  # float16 scale and minimum
        each = most / np.float32(steps) * np.float32(share) + rounding
        return np.repeat(each, 32, axis=1)


def target(text: str, gguf: bool) -> Target:
    """The target of a name on the command line. Raises UsageError listing the known ones."""
    if gguf:
        name = text.upper()
        if name not in GGUF_TYPES:
            raise UsageError(f"format {text!r} cannot be written to GGUF; known: "
                             f"{', '.join(GGUF_TYPES)}")  # fmt: skip
        return GgufTarget(name)
    name = text.lower()
    kinds = {"int8": NAMES["int8-row"], "int4": NAMES["int4-row"], "int3-g64": NAMES["int3-g64"]}
    kinds |= {f"int4-g{gs}": IntKind("int4-grouped", "4", gs) for gs in GROUPS}
    if name in kinds:
        return IntTarget(kinds[name])
    if name in FLOATS:
        return FloatTarget(name)
    raise UsageError(f"format {text!r} is not known; known: {', '.join([*kinds, *FLOATS])}")


def part_of(t: Tensor) -> str:
    """Which part of a model a tensor belongs to, by its GGUF name."""
    name = t.name.split(".", 2)[-1] if t.name.startswith("blk.") else t.name
    if len(t.shape) < 2 or not t.name.endswith(".weight") or any(k in name for k in KEPT):
        return "kept"
    if "_exps." in name:
        return "experts"
    if "_shexp." in name:
        return "shared"
    if name.startswith(("attn_", "indexer.")):
        return "attention"
    return "head" if name in ("output.weight", "token_embd.weight") else "rest"


@dataclass(frozen=True)
class Choice:
    """Targets by part, and what everything else takes."""

    default: Target
    parts: Mapping[str, Target]
    gguf: bool

    def of(self, t: Tensor) -> Target:
        """The target of a tensor: what has rows that a format cannot take stays float16."""
        part = part_of(t)
        if part == "kept":
            return GgufTarget("F32") if self.gguf else FloatTarget("f32")
        chosen = self.parts.get(part, self.default)
        if isinstance(chosen, GgufTarget) and t.cols % GGML_QUANT_SIZES[chosen.kind][0]:
            return GgufTarget("F16")
        return chosen

    @property
    def names(self) -> dict[str, str]:
        """As the manifest keeps them."""
        return {"format": self.default.name, **{p: t.name for p, t in self.parts.items()}}
