"""Latent attention of single tokens in int8 products: in one dispatch, in two, by stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kernels import (
    mla_absorb_q8,
    mla_attend_q8,
    mla_compress_q8,
    mla_expand_q8,
    mla_token,
    mla_token_plain,
    mla_values_q8,
    norm_matvec_q8,
    q8,
)
from ..kernels.mla_parts import query_width
from .builder_base import SHORT_LATENT
from .builder_dsa import choose_positions, chooses
from .builder_mla import (
    absorbed,
    first_products,
    latent_cache,
    products_buf,
    sizes,
    token_core,
    token_queries,
)
from .mla_weights import MlaWeights
from .plan import Buf, Operand, Phase
from .weights import CHUNK

if TYPE_CHECKING:
    from .builder import Push
    from .builder_int8 import Int8Builder


def compresses(b: Int8Builder, layer: int) -> bool:
    """Whether the layer's queries are compressed and their second product has an int8 form."""
    m = sizes(b)
    q_b = MlaWeights(m, b.weights, layer).q_b() if m.q_rank else None
    return q_b is not None and m.q_rank % CHUNK == 0 and q_b.format_name in q8.FORMATS


def short_form(b: Int8Builder, layer: int) -> str:
    """The layer's form, as PlanOptions.latent: in short contexts, with weights and a cache in
    formats that its kernels have."""
    m, w = sizes(b), MlaWeights(sizes(b), b.weights, layer)
    known = latent_cache(b, layer).format_name == "F16" and w.v_b().format_name in q8.FORMATS
    short = 0 < b.reach <= SHORT_LATENT
    if not (short and b.opts.latent and known) or chooses(b) or not w.k_b_q8():
        return ""
    if b.opts.latent == "parts" and m.q_rank and compresses(b, layer):
        return "parts"
    if b.opts.latent == "head" and m.q_rank and w.v_and_q_b():
        return "head"
    return "core" if not m.q_rank or compresses(b, layer) else ""


def int8_first(b: Int8Builder, x: Buf, gain: str, layer: int, small: Buf | None) -> Buf:
    """The first products in float32, and in int8 in `small` what is times the query's gain."""
    m, a = sizes(b), products_buf(b)
    names, rows = first_products(m, layer)
    for piece, first in b.weights.rows(names, rows, x.cols):
        params: Push = {"cols": x.cols, "rows": piece.rows, "y_off": first, "eps": b.spec.eps}
        ops: dict[str, Operand] = {"w": piece, "ssq": b.squares(x), "y": a}
        ops |= b.quantized(x, "xq", "xs")
        kernel = norm_matvec_q8.KERNEL
        if small and first < m.q_rank:
            kernel, params = mla_compress_q8.KERNEL, params | {"width": m.q_rank}
            ops |= {"g": b.weights.vector(f"blk.{layer}.attn_q_a_norm.weight", m.q_rank)}
            ops |= {"squares_of": b.squares(small)} | b.quantized(small, "yq", "ys")
        b.add(kernel, Phase.Q_PREP, piece.name, params, **ops)
    choose_positions(b, x, gain, a, layer, single=True)
    return a


def int8_plain(b: Int8Builder, small: Buf, layer: int) -> Buf:
    """Plain queries (1, heads * (nope + n_rot)) from the compressed one in int8."""
    m, w = sizes(b), MlaWeights(sizes(b), b.weights, layer).q_b()
    plain = Buf(f"mla.plain.{m.heads * m.head}", (b.opts.batch, m.heads * m.head))
    params: Push = {"cols": m.q_rank, "rows": plain.cols, "y_off": 0, "eps": b.spec.eps}
    b.add(norm_matvec_q8.KERNEL, Phase.Q_PREP, w.name, params, w=w, y=plain,
          ssq=b.squares(small), **b.quantized(small, "xq", "xs"))  # fmt: skip
    return plain


def token_in_one(b: Int8Builder, plain: Buf | None, a: Buf, y: Buf, layer: int) -> None:
    """The heads' values in int8, from plain queries or from the compressed one in `a`."""
    m, w = sizes(b), MlaWeights(sizes(b), b.weights, layer)
    k_b = w.k_b_q8()
    assert k_b is not None
    params: Push = {
        "heads": m.heads, "rank": m.rank, "nope": m.nope, "n_rot": m.n_rot, "value": m.value,
        "scale": b.spec.attn_scale, "eps": b.spec.eps,
    }  # fmt: skip
    ops: dict[str, Operand] = {
        "a": a, "kb": k_b, "rope": b.rope(layer), "k": latent_cache(b, layer),
    }  # fmt: skip
    ops |= b.quantized(y, "yq", "ys")
    gains = w.label + "attn_q_a_norm.weight", w.label + "attn_kv_a_norm.weight"
    label = f"{w.label}attention"
    if plain:
        h = b.weights.vector(gains[1], m.rank)
        b.add(mla_token_plain.KERNEL, Phase.CORE, label, params | {"first": m.first}, w=w.v_b(),
              x=plain, h=h, **ops)  # fmt: skip
        return
    both, h = w.v_and_q_b(), b.weights.vectors(gains, (m.q_rank, m.rank))
    assert both is not None
    b.add(mla_token.KERNEL, Phase.CORE, label, params | {"q_rank": m.q_rank}, w=both, h=h, **ops)


def token_in_parts(b: Int8Builder, a: Buf, y: Buf, layer: int) -> None:
    """The heads' values in int8 from the compressed query in `a`, several workgroups per head."""
    m, w, parts = sizes(b), MlaWeights(sizes(b), b.weights, layer), b.opts.latent_parts
    k_b, k = w.k_b_q8(), latent_cache(b, layer)
    assert k_b is not None
    width = query_width(m.heads, m.rank, m.n_rot, parts.query)
    q = Buf(f"mla.parts.{width}", (b.opts.batch, width))
    params: Push = {"heads": m.heads, "rank": m.rank, "n_rot": m.n_rot, "parts": parts.query}
    gains = w.label + "attn_q_a_norm.weight", w.label + "attn_kv_a_norm.weight"
    b.add(mla_absorb_q8.KERNEL, Phase.Q_PREP, w.q_b().name,
          params | {"nope": m.nope, "q_rank": m.q_rank, "eps": b.spec.eps}, w=w.q_b(), a=a, kb=k_b,
          h=b.weights.vectors(gains, (m.q_rank, m.rank)), rope=b.rope(layer), q=q, k=k)  # fmt: skip
    more: Push = {"value": m.value, "shares": parts.values, "scale": b.spec.attn_scale}
    b.add(mla_attend_q8.KERNEL, Phase.CORE, w.v_b().name, params | more, w=w.v_b(), q=q, k=k,
          **b.quantized(y, "yq", "ys"))  # fmt: skip


def int8_latent(b: Int8Builder, x: Buf, gain: str, y: Buf, layer: int) -> None:
    """Five dispatches, four where queries are not compressed; in short contexts three, two with a
    workgroup per head."""
    m, form, int8 = sizes(b), short_form(b, layer), compresses(b, layer)
    small = Buf(f"mla.compressed.{m.q_rank}", (1, m.q_rank))
    a = int8_first(b, x, gain, layer, small if int8 and form not in ("head", "parts") else None)
    if form == "parts":
        token_in_parts(b, a, y, layer)
        return
    if form == "head":
        token_in_one(b, None, a, y, layer)
        return
    plain = int8_plain(b, small, layer) if int8 else a
    if form == "core":
        token_in_one(b, plain, a, y, layer)
        return
    q = absorbed(b, plain, a, layer) if int8 else token_queries(b, a, layer)
    part, join = token_core(b, q, layer)
    v_b = MlaWeights(m, b.weights, layer).v_b()
    kernel = mla_expand_q8 if v_b.format_name in q8.FORMATS else mla_values_q8
    b.add(kernel.KERNEL, Phase.CORE, v_b.name, join, part=part, w=v_b,
          **b.quantized(y, "yq", "ys"))  # fmt: skip
