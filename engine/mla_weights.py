"""The weights of latent attention that are not taken as the file holds them."""

from __future__ import annotations

import numpy as np

from ..kernels import q8
from .blocks import FORMATS, Floats, Matrix
from .container import Container
from .plan import Weight
from .spec_mla import MlaSpec
from .weights import CHUNK, Weights

WHOLE = {"F16": "F16", "F32": "F32", "BF16": "F32"}


class MlaWeights:
    """Of layer `layer`. k_b is kept in float16 (float32 where the file is finer), because it meets
    a product of another format in one kernel, and in Q8_0 for tokens in short contexts."""

    def __init__(self, m: MlaSpec, weights: Weights, layer: int) -> None:
        self.m, self.weights, self.label = m, weights, f"blk.{layer}."

    def k_b(self) -> Weight:
        """(heads * rank, nope)."""
        m, name = self.m, self.label + "attn_k_b.weight"

        def make(c: Container) -> Matrix:
            found = c.matrix(name, m.heads, m.rank, m.nope)
            kind = WHOLE.get(found.fmt.name, "F16")
            return found if found.fmt.name == kind else found.converted(FORMATS[kind])

        return self.weights.made(self.label + "attn_k_b", make)

    def k_b_q8(self) -> Weight | None:
        """k_b in Q8_0 for products with queries in int8; None where the file is finer."""
        name = self.label + "attn_k_b"
        found = self.weights.matrix(f"{name}.weight", self.m.heads, self.m.rank, self.m.nope)
        if found.fmt.name not in q8.FORMATS:
            return None
        q8_0 = FORMATS["Q8_0"]
        return self.weights.made(
            f"{name}.q8", lambda c: found if found.fmt is q8_0 else found.converted(q8_0)
        )

    def v_b(self) -> Weight:
        """(heads * value, rank)."""
        m, name = self.m, self.label + "attn_v_b.weight"
        return self.weights.stack(name, [self.weights.matrix(name, m.heads, m.value, m.rank)])

    @property
    def q_cols(self) -> int:
        """Columns of q_b: those of the compressed query, up to whole chunks."""
        return -(-self.m.q_rank // CHUNK) * CHUNK

    def q_b(self) -> Weight:
        """(heads * (nope + n_rot), q_cols), zeros behind the compressed query's columns."""
        m, name = self.m, self.label + "attn_q_b.weight"
        rows = m.heads * m.head
        if self.q_cols == m.q_rank:
            return self.weights.stack(name, [self.weights.matrix(name, rows, m.q_rank)])

        def padded(c: Container) -> Floats:
            out = np.zeros((rows, self.q_cols), np.float32)
            out[:, : m.q_rank] = c.matrix(name, rows, m.q_rank).dequantize()
            return out

        return self.weights.table(name, padded)

    def v_and_q_b(self) -> Weight | None:
        """v_b, then q_b as one weight, for the kernel that multiplies with both; None where their
        formats differ. It is there besides them: prompts and long contexts take them apart."""
        v, q = self.v_b(), self.q_b()
        parts, blocks = (*v.parts, *q.parts), v.rows * v.cols // v.fmt.elems
        whole = (q.rows * q.cols) % v.cols == 0 and blocks % 32 == 0  # planes of q_b begin on words
        alike = q.fmt is v.fmt and q.fmt.name in q8.FORMATS and self.q_cols == self.m.q_rank
        if not (alike and whole and self.weights.fits(*parts)):
            return None
        return self.weights.stack(f"{self.label}attn_v_b|attn_q_b", parts)
