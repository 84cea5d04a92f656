"""Products of a single token in int8 where a model mixes formats.

What reads the normalised vector has it in float32 as well, so each matrix goes by its own format:
int8 where it has such kernels (kernels/q8.py), float32 where not (F16, IQ3_S, …).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..kernels import geglu_q8, matvec, norm_matvec, norm_matvec_q8, q8, swiglu_q8
from .plan import Buf, Phase

if TYPE_CHECKING:
    from .builder_int8 import Int8Builder

# Tensors of a layer that any format does for; others read vectors that exist in int8 only
ANY_FORMAT = re.compile(r"\.(attn_q|attn_k|attn_v|attn_qkv|(ffn_gate|ffn_up)(_shexp)?)\.weight$")


def normed_product(
    b: Int8Builder, x: Buf, gain: str, names: Sequence[str], rows: Sequence[int], y: Buf,
    phase: Phase,
) -> None:  # fmt: skip
    """y = [W1; W2; …] (rmsnorm(x) * gain), or of x without a gain; one kernel per run of a
    format; y row 0."""
    ssq, eps = b.norm_of(x, gain)
    for w, first in b.weights.rows(names, rows, x.cols):
        if w.fmt.name in q8.FORMATS:
            own = {"cols": x.cols, "rows": w.rows, "y_off": first, "eps": eps}
            ops = b.quantized(x, "xq", "xs") | {"ssq": ssq}
            b.add(norm_matvec_q8.KERNEL, phase, w.name, own, w=w, y=y, **ops)
        elif not gain:
            b.add(matvec.KERNEL, phase, w.name, b.product(w, x.cols, y, first), x=x, w=w, y=y)
        else:
            params = b.product(w, x.cols, y, first) | {"eps": b.spec.eps}
            g = b.weights.vector(gain, x.cols)
            b.add(norm_matvec.KERNEL, phase, w.name, params, x=x, g=g, w=w, y=y)


def gated_apart(
    b: Int8Builder, x: Buf, gain: str, names: Sequence[str], y: Buf, gate: str,
    bias: Sequence[str],
) -> None:  # fmt: skip
    """y = silu(G xn) * (U xn) in int8, or with gelu, or with biases: products, then the gate."""
    n_ff, phase = y.cols, Phase.FFN
    both = b.buf(f"gate_up.{n_ff}", 2 * n_ff)
    normed_product(b, x, gain, names, b.gated_rows(names, n_ff), both, phase)
    b.add_bias(both, bias, phase)
    b.add(
        (geglu_q8 if gate == "gelu" else swiglu_q8).KERNEL, phase, "|".join(names),
        {"n_ff": n_ff}, gu=both, **b.quantized(y, "yq", "ys"),
    )  # fmt: skip
