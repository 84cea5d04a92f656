"""Attention with a sink per head (gpt-oss): a score that takes part in the softmax without a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..kernels import attention, attention_combine_sinks, attention_prefill_sinks, quantize_q8
from .plan import Buf, Phase, Weight

if TYPE_CHECKING:
    from .builder import Builder, Push
    from .builder_batch import BatchBuilder
    from .builder_int8 import Int8Builder


def has_sinks(b: Builder) -> bool:
    """Whether the model's heads have sinks."""
    return "attn_sinks.weight" in b.spec.has


def sinks_of(b: Builder, layer: int) -> Weight:
    """The sinks of a layer (1, n_head)."""
    return b.weights.vector(f"blk.{layer}.attn_sinks.weight", b.layer(layer).n_head)


def token_sinks(b: Builder, qkv: Buf, y: Buf, layer: int) -> None:
    """Splits of the context, joined with the sinks."""
    s, splits, part = b.layer(layer), b.opts.splits, b.part(layer)
    label, phase = f"blk.{layer}.attention", Phase.ATTENTION
    params = b.attention(layer) | {"splits": splits}
    b.add(attention.KERNEL, phase, label, params, qkv=qkv, k=b.cache("k", layer),
          v=b.cache("v", layer), part=part)  # fmt: skip
    join: Push = {"n_head": s.n_head, "head_dim": s.head_dim, "splits": splits}
    b.add(attention_combine_sinks.KERNEL, phase, label, join, part=part, y=y,
          sinks=sinks_of(b, layer))  # fmt: skip


def int8_sinks(b: Int8Builder, qkv: Buf, y: Buf, layer: int) -> None:
    """The same, the result quantized in a dispatch of its own."""
    token_sinks(b, qkv, y, layer)
    ones = b.weights.table(f"ones.{y.cols}", lambda c: np.ones((1, y.cols), np.float32))
    b.add(quantize_q8.KERNEL, Phase.ATTENTION, f"blk.{layer}.attention", {"cols": y.cols}, x=y,
          g=ones, ssq=b.squares(y), **b.quantized(y, "yq", "ys"))  # fmt: skip


def batch_sinks(b: BatchBuilder, qkv: Buf, y: Buf, layer: int) -> None:
    """Causal attention of a batch, in float32."""
    b.add(attention_prefill_sinks.KERNEL, Phase.ATTENTION, f"blk.{layer}.attention",
          b.attention(layer), qkv=qkv, k=b.cache("k", layer), v=b.cache("v", layer), y=y,
          sinks=sinks_of(b, layer))  # fmt: skip
    if b.opts.products != "f32":
        b.as_factor(y, Phase.ATTENTION)
