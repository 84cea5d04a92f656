"""What a file of arch/ says of its family, and the pieces that several of them are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..container import Container
from ..keys import Keys
from ..plan import Buf, Phase
from ..shapes import Shapes
from ..spec_model import ModelSpec

if TYPE_CHECKING:
    from ..builder import Builder


@dataclass(frozen=True)
class Family:
    """`spec` reads the keys, `shapes` names the tensors, `layers` lists the dispatches.

    `layers` returns the residual stream x (batch, n_embd) behind the last layer.
    """

    spec: Callable[[Container, Keys], ModelSpec]
    shapes: Callable[[ModelSpec], Shapes]
    layers: Callable[[Builder], Buf]


def qkv_names(s: ModelSpec, layer: int) -> list[str]:
    """The projections of queries, keys and values: one tensor or three."""
    parts = ["attn_qkv"] if s.fused_qkv else ["attn_q", "attn_k", "attn_v"]
    return [f"blk.{layer}.{part}.weight" for part in parts]


def qkv_bias(s: ModelSpec, layer: int) -> tuple[str, ...]:
    """The biases of queries, keys and values: for all at once, for each ("": none), or no one's."""
    if "attn_qkv.bias" in s.has:
        return (f"blk.{layer}.attn_qkv.bias",)
    parts = ("attn_q.bias", "attn_k.bias", "attn_v.bias")
    if not s.has.intersection(parts):
        return ()
    return tuple(f"blk.{layer}.{part}" if part in s.has else "" for part in parts)


def inner_bias(s: ModelSpec, layer: int) -> tuple[str, ...]:
    """The biases of gate and up for `gated`: each ("": none), that of both, or no one's."""
    parts = [f"ffn_{p}" for p in ("gate", "up") if f"ffn_{p}.weight" in s.has]
    names = [f"{p}.bias" if f"{p}.bias" in s.has else "" for p in parts]
    return tuple(f"blk.{layer}.{name}" if name else "" for name in names) if any(names) else ()


def biased_add(b: Builder, x: Buf, name: str, y: Buf, phase: Phase, gain: str) -> None:
    """y += W x + c for "NAME.weight" and "NAME.bias", where the model has that. The bias goes
    first: the product's kernel may quantize the sum for what reads y next."""
    if f"{name}.bias" in b.spec.tensors:
        b.add_bias(y, [f"{name}.bias"], phase)
    b.project_add(x, f"{name}.weight", y, phase, gain)


def next_gain(s: ModelSpec, layer: int) -> str:
    """The norm that reads the residual stream behind a layer."""
    last = layer + 1 == s.n_layer
    return "output_norm.weight" if last else f"blk.{layer + 1}.attn_norm.weight"
