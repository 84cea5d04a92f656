"""Latent attention: queries absorbed, the cache's rows met as they are, values made at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kernels import (
    heads_matmul,
    heads_matmul_coop,
    mla,
    mla_absorb,
    mla_attention,
    mla_attention_chosen,
    mla_attention_coop,
    mla_prefill,
    mla_prefill_chosen,
    mla_prefill_coop,
    mla_query,
    mla_rows,
    mla_values,
    norm_slice,
    quantize_rows,
)
from .builder_dsa import choose_positions, chooses, chosen_buf
from .errors import UsageError
from .mla_weights import MlaWeights
from .plan import Buf, Operand, Phase, Role
from .spec_mla import MlaSpec

if TYPE_CHECKING:
    from .builder import Builder, Push
    from .builder_batch import BatchBuilder
    from .builder_token import TokenBuilder

MAX_SPLITS = 32  # every workgroup of mla_values reads the parts of all splits


def sizes(b: Builder) -> MlaSpec:
    """The model's latent attention."""
    assert b.spec.mla is not None
    return b.spec.mla


def latent_cache(b: Builder, layer: int) -> Buf:
    """Latents and keys of one layer (n_ctx, rank + n_rot), kept once."""
    if b.opts.cache_k not in ("F16", "F32"):
        raise UsageError(
            f"the keys' cache cannot be {b.opts.cache_k.lower()}: latent attention keeps its rows "
            "in f16 or f32"
        )
    return Buf(f"k.{layer}", (b.opts.n_ctx, sizes(b).width), b.opts.cache_k, Role.CACHE)


def first_products(m: MlaSpec, layer: int) -> tuple[list[str], list[int]]:
    """What is made of the layer's input: query (compressed or not), latent and key."""
    query = "attn_q_a" if m.q_rank else "attn_q"
    names = [f"blk.{layer}.{part}.weight" for part in (query, "attn_kv_a_mqa")]
    return names, [m.first, m.width]


def shared_sizes(m: MlaSpec) -> Push:
    """Push words that most of the kernels have."""
    return {"rank": m.rank, "nope": m.nope, "n_rot": m.n_rot, "heads": m.heads}


def token_queries(b: Builder, a: Buf, layer: int) -> Buf:
    """Absorbed queries (1, heads * (rank + n_rot)) from the first products; writes the cache."""
    m, label = sizes(b), f"blk.{layer}.attn_q_b"
    w = MlaWeights(m, b.weights, layer)
    q = Buf(f"mla.q.{m.heads * m.width}", (b.opts.batch, m.heads * m.width))
    if not m.q_rank:
        return absorbed(b, a, a, layer)
    params = shared_sizes(m) | {"eps": b.spec.eps, "cols": w.q_cols, "q_rank": m.q_rank}
    b.add(
        mla_query.KERNEL, Phase.Q_PREP, label, params, a=a, w=w.q_b(), kb=w.k_b(),
        g=b.weights.vector(w.label + "attn_q_a_norm.weight", m.q_rank),
        h=b.weights.vector(w.label + "attn_kv_a_norm.weight", m.rank), rope=b.rope(layer), q=q,
        k=latent_cache(b, layer),
    )  # fmt: skip
    return q


def absorbed(b: Builder, plain: Buf, a: Buf, layer: int) -> Buf:
    """Absorbed queries from plain ones; writes the cache from a (…, latent, key)."""
    m, w = sizes(b), MlaWeights(sizes(b), b.weights, layer)
    q = Buf(f"mla.q.{m.heads * m.width}", (b.opts.batch, m.heads * m.width))
    params = shared_sizes(m) | {"eps": b.spec.eps, "first": m.first}
    b.add(
        mla_absorb.KERNEL, Phase.Q_PREP, w.label + "attn_k_b", params, x=plain, a=a, kb=w.k_b(),
        h=b.weights.vector(w.label + "attn_kv_a_norm.weight", m.rank), rope=b.rope(layer), q=q,
        k=latent_cache(b, layer),
    )  # fmt: skip
    return q


def sparse(b: Builder) -> tuple[int, dict[str, Operand]]:
    """How many positions a token may see, and where they are listed."""
    d = chooses(b)
    return (d.most, {"chosen": chosen_buf(b, d)}) if d else (mla.ALL, {})


def token_core(b: Builder, q: Buf, layer: int) -> tuple[Buf, Push]:
    """Parts of all splits, and how the next kernel is to join them."""
    most, chosen = sparse(b)
    m, cache = sizes(b), latent_cache(b, layer)
    kernel, least = mla_attention_chosen.KERNEL if chosen else mla_attention.KERNEL, mla.MIN_SPLIT
    splits = min(b.opts.splits, MAX_SPLITS)
    on_cores = b.opts.tiles and cache.format_name == "F16" and not chosen
    if on_cores and not b.reach:  # in short contexts a tile is mostly empty
        kernel, least = mla_attention_coop.KERNEL, mla_attention_coop.LEAST
        splits = min(mla_attention_coop.SPLITS, -(-b.opts.n_ctx // least))
    part = Buf(f"mla.part.{m.heads}.{splits}", (m.heads, splits, m.rank + 2))
    common: Push = {"heads": m.heads, "splits": splits, "most": most, "rank": m.rank}
    common |= {"least": least}
    params = common | {"n_rot": m.n_rot, "scale": b.spec.attn_scale}
    b.add(kernel, Phase.CORE, f"blk.{layer}.attention", params, q=q, k=cache, part=part, **chosen)
    return part, common | {"rows": m.value}


def products_buf(b: Builder) -> Buf:
    """What the first products make (batch, first + rank + n_rot)."""
    m = sizes(b)
    return b.buf(f"mla.a.{m.first + m.width}", m.first + m.width)


def token_latent(b: TokenBuilder, x: Buf, gain: str, y: Buf, layer: int) -> None:
    """Four dispatches in float32."""
    m, a = sizes(b), products_buf(b)
    names, rows = first_products(m, layer)
    b.norm_project_last(x, gain, names, rows, a, Phase.Q_PREP)
    choose_positions(b, x, gain, a, layer, single=True)
    part, join = token_core(b, token_queries(b, a, layer), layer)
    w = MlaWeights(m, b.weights, layer).v_b()
    b.add(mla_values.KERNEL, Phase.CORE, w.name, join, part=part, w=w, y=y)


def batch_queries(b: BatchBuilder, a: Buf, layer: int) -> Buf:
    """Plain queries (batch, heads * (nope + n_rot))."""
    m = sizes(b)
    if not m.q_rank:
        return a
    w = MlaWeights(m, b.weights, layer)
    weight, q = w.q_b(), b.buf(f"mla.plain.{m.heads * m.head}", m.heads * m.head)
    normed = b.factor(f"mla.normed.{w.q_cols}", w.q_cols)
    norm: Push = {
        "cols": w.q_cols, "width": m.q_rank, "x_stride": a.cols, "x_off": 0,
        "y_stride": normed.cols, "eps": b.spec.eps,
    }  # fmt: skip
    gain = w.label + "attn_q_a_norm.weight"
    g = b.weights.vector(gain, m.q_rank)
    b.add(norm_slice.KERNEL, Phase.Q_PREP, gain, norm, x=a, g=g, y=normed)
    params = b.product(weight, w.q_cols, q, 0) | {"x_stride": normed.cols}
    b.add(b.form.matmul, Phase.Q_PREP, weight.name, params, x=normed, w=weight, y=q)
    return q


def batch_core(b: BatchBuilder, q: Buf, cache: Buf, label: str) -> Buf:
    """Weighted sums of latents (batch, heads * rank), on matrix cores in their form."""
    m, (most, chosen) = sizes(b), sparse(b)
    name, width = f"mla.latent.{m.heads * m.rank}", m.heads * m.rank
    core: Push = {"heads": m.heads, "rank": m.rank, "n_rot": m.n_rot, "scale": b.spec.attn_scale}
    core |= {"most": most} if chosen else {}
    cores = b.opts.coop_attention and not chosen
    dense = mla_prefill_coop.KERNEL if cores else mla_prefill.KERNEL
    y = b.factor(name, width) if cores else b.buf(name, width)
    kernel = mla_prefill_chosen.KERNEL if chosen else dense
    b.add(kernel, Phase.CORE, label + "attention", core, q=q, k=cache, y=y, **chosen)
    return y


def batch_latent(b: BatchBuilder, x: Buf, gain: str, y: Buf, layer: int) -> None:
    """The absorbed form for a batch."""
    m, a, cache = sizes(b), products_buf(b), latent_cache(b, layer)
    names, rows = first_products(m, layer)
    b.project(b.normed(x, gain, Phase.Q_PREP), names, rows, x.cols, a, Phase.Q_PREP)
    choose_positions(b, x, gain, a, layer, single=False)
    plain, w = batch_queries(b, a, layer), MlaWeights(m, b.weights, layer)
    q = b.buf(f"mla.q.{m.heads * m.width}", m.heads * m.width)
    product = heads_matmul_coop if b.opts.products == "f16" else heads_matmul
    k_b, v_b = w.k_b(), w.v_b()
    params: Push = {
        "cols": m.nope, "rows": m.rank, "x_stride": plain.cols, "y_stride": q.cols, "y_off": 0,
        "x_head": m.head, "y_head": m.width, "groups": m.heads,
    }  # fmt: skip
    b.add(product.KERNEL, Phase.Q_PREP, k_b.name, params, x=plain, w=k_b, y=q)
    row: Push = shared_sizes(m) | {
        "eps": b.spec.eps, "a_stride": a.cols, "a_off": m.first, "b_stride": plain.cols,
    }  # fmt: skip
    h = b.weights.vector(w.label + "attn_kv_a_norm.weight", m.rank)
    b.add(mla_rows.KERNEL, Phase.Q_PREP, w.label + "rope", row, a=a, b=plain, h=h,
          rope=b.rope(layer), q=q, k=cache)  # fmt: skip
    latent = batch_core(b, q, cache, w.label)
    values: Push = {
        "cols": m.rank, "rows": m.value, "x_stride": latent.cols, "y_stride": y.cols, "y_off": 0,
        "x_head": m.rank, "y_head": m.value, "groups": m.heads,
    }  # fmt: skip
    b.add(product.KERNEL, Phase.CORE, v_b.name, values, x=latent, w=v_b, y=y)
    out = b.factor(y.name, y.cols)
    if out.name != y.name:
        as_rows: Push = {"cols": y.cols, "x_stride": y.cols, "y_stride": out.cols}
        b.add(quantize_rows.KERNEL, Phase.CORE, v_b.name, as_rows, x=y, y=out)
