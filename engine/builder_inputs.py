"""The end of a layer that has a vector of its own for every token (Gemma 4 E2B and E4B).

y += rmsnorm(D x) * post_down, then y = (y + rmsnorm(P (gelu(G y) * input)) * post) * scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..kernels import matvec, norm_add_matvec_gelu, norm_add_twice_q8
from .plan import Buf, Phase

if TYPE_CHECKING:
    from .builder import Builder, Push
    from .builder_int8 import Int8Builder

PAD = 32  # columns of products are a multiple


@dataclass(frozen=True)
class InputNames:
    """Tensors of the end of a layer: D, its norm, G, P and the norm of P."""

    down: str
    post_down: str
    gate: str
    proj: str
    post: str


def gate_buf(b: Builder) -> Buf:
    """gelu(G y) * input, padded."""
    return b.buf("layer_gate", -(-b.spec.n_embd_layer // PAD) * PAD)


def inputs_apart(
    b: Builder, x: Buf, n: InputNames, y: Buf, inputs: Buf, layer: int, gain: str, scale: float
) -> None:
    """Six dispatches: product, norm and sum, product, gate, product, norm and sum."""
    width, phase, gate = b.spec.n_embd_layer, Phase.FFN, gate_buf(b)
    product = b.buf("product", y.cols)
    b.project_norm_add(x, n.down, n.post_down, y, phase, "")
    b.narrow(y, n.gate, width, y.cols, gate, phase)
    b.gelu_mul(gate, inputs, width, layer, phase)
    b.narrow(gate, n.proj, y.cols, width, product, phase)
    b.norm_add(product, n.post, y, phase, gain, scale)


def inputs_int8(
    b: Int8Builder, x: Buf, n: InputNames, y: Buf, inputs: Buf, layer: int, gain: str,
    scale: float,
) -> None:  # fmt: skip
    """Four dispatches of a single token: y + rmsnorm(D x) is made where it is read, twice, and
    written with the second sum only. Both products lie in one buffer."""
    width, cols, phase, gate = b.spec.n_embd_layer, y.cols, Phase.FFN, gate_buf(b)
    products = b.buf("layer_products", cols + -(-cols // PAD) * PAD)
    b.product_q8(x, n.down, cols, products, phase)
    w, g = b.weights.padded(n.gate, width, cols), b.weights.vector(n.post_down, cols)
    params: Push = {"cols": cols, "rows": w.rows, "y_off": 0, "eps": b.spec.eps,
                    "e_off": layer * width, "e_cols": width}  # fmt: skip
    b.add(norm_add_matvec_gelu.KERNEL, phase, n.gate, params, x=y, z=products, w=w, y=gate,
          e=inputs, g=g)  # fmt: skip
    w = b.weights.padded(n.proj, cols, width)
    b.add(matvec.KERNEL, phase, n.proj, b.product(w, w.cols, products, cols), x=gate, w=w,
          y=products)  # fmt: skip
    b.add(
        norm_add_twice_q8.KERNEL, phase, n.post,
        {"cols": cols, "eps": b.spec.eps, "scale": scale}, x=products, y=y,
        post=b.weights.vectors((n.post_down, n.post), (cols, cols)),
        g=b.weights.vector(gain, cols), ssq=b.squares(y), **b.quantized(y, "yq", "ys"),
    )  # fmt: skip
