"""Which products a model takes on a device: factors in float32, float16 or int8.

Single tokens take int8 activations where the device multiplies packed bytes and all weights of
the layers are quantized; batches take float16 on matrix cores, else int8. `--math` forces one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..kernels import (
    attention_prefill_coop,
    attention_q8,
    attention_short_q8,
    attention_tiles_q8,
    matmul_coop,
    matvec_int8,
    mla_attention_coop,
    mla_parts,
    mla_prefill_coop,
    mla_token_launch,
    q8,
)
from .builder_base import FEW_HEADS, PLAIN_LATENT, SHORT, SHORT_LATENT, PlanOptions
from .builder_int8 import obstacle as int8_obstacle
from .builder_int8 import takes_batches
from .builder_narrow import suits as narrow_suits
from .container import Container
from .device import Device
from .errors import UsageError
from .layout import binding_limit
from .spec import ModelSpec
from .spec_mla import MlaSpec

MAX_SPLITS = 64  # as in shaders/attention_combine.comp
PREFETCHING = ("discrete",)  # devices whose caches have room for weights of the next products


@dataclass(frozen=True)
class Products:
    """Factors of single tokens (`int8` or float32) and of batches ("f32", "f16", "int8")."""

    int8: bool
    batches: str

    @property
    def describe(self) -> str:
        """As `--verbose` prints it: "int8 products, f16 in batches"."""
        one = "int8" if self.int8 else "f32"
        return f"{one} products" + ("" if one == self.batches else f", {self.batches} in batches")


def choose_products(container: Container, spec: ModelSpec, device: Device, math: str) -> Products:
    """The products for `--math` auto, f32, f16 or int8. UsageError names what is in the way."""
    if math == "f32":
        return Products(False, "f32")
    limits = device.limits
    cores = matmul_coop.KERNEL.needs(limits)
    if math == "f16":
        if not cores:
            raise UsageError(f"--math f16 cannot be used: {device.info.name} has no matrix cores")
        return Products(False, "f16")
    obstacle = int8_obstacle(container, binding_limit(device))
    emulated = math == "int8" and device.info.int_dot != "none"
    if not q8.needs(limits.with_(int_dot=limits.int_dot or emulated)):
        obstacle = f"{device.info.name} has no packed 8-bit dot product"
    for s in () if spec.mla else spec.layers:
        group = s.n_head // s.n_head_kv
        if not attention_q8.suits(group, s.head_dim, limits):
            obstacle = f"{group} heads of {s.head_dim} per key/value head do not fit its attention"
    if obstacle and math == "int8":
        raise UsageError(f"--math int8 cannot be used: {obstacle}")
    if math == "auto" and cores:
        return Products(not obstacle, "f16")
    int8_batches = not obstacle and takes_batches(container)
    return Products(not obstacle, "int8" if int8_batches else "f32")


def plan_options(
    container: Container, spec: ModelSpec, device: Device, n_ctx: int, batch: int,
    caches: tuple[str, str], math: str,
) -> tuple[Products, PlanOptions]:
    """The products, and all that a device's limits decide about plans. Raises as choose_products.

    `caches`: types of keys and values ("f16"); `batch`: most tokens of a batch that are wanted.
    """
    products, binding = choose_products(container, spec, device, math), binding_limit(device)
    # sparse attention has a row of scores per token
    widest = max(spec.widest, n_ctx if spec.dsa and n_ctx > spec.dsa.most else 0)
    most = max(1, min(batch, n_ctx, binding // (4 * widest)))
    grouped = not spec.mla
    k, v = (kind.upper() for kind in caches)
    tiles = products.int8 and _attends_by_tiles(spec, device, caches)
    short = products.int8 and grouped and all(
        attention_short_q8.suits(s.head_dim, k, v, device.limits) for s in spec.layers
    )  # fmt: skip
    latent = _latent_form(spec, device) if products.int8 else ""
    return products, PlanOptions(
        n_ctx, most, caches[0].upper(), caches[1].upper(),
        splits=choose_splits(device.limits.units, spec.n_head_kv), binding_bytes=binding,
        int8=products.int8, products=products.batches,
        coop_attention=_attends_on_matrix_cores(products, spec, device, caches),
        tiles=tiles, short_attention=short,
        prefetch=short and device.info.type in PREFETCHING, latent=latent,
        narrow=short and not device.limits.software and narrow_suits(
            container, spec, device.limits, caches
        ),
        reaches=reaches(spec, tiles, short, latent),
        choosers=device.limits.subgroup_size if products.int8 and not device.limits.software else 0,
        latent_parts=mla_parts.parts_of(_head(spec.mla), spec.mla.heads, device.limits)
        if spec.mla else mla_parts.WHOLE,
        few=matvec_int8.MOST if products.int8 and grouped and not spec.moe
        and takes_batches(container) else 0,
    )  # fmt: skip


def reaches(spec: ModelSpec, tiles: bool, short: bool, latent: str) -> tuple[int, ...]:
    """Positions up to which single tokens have plans of their own; arguments as in PlanOptions."""
    if not spec.mla:
        return (SHORT,) if tiles or short else ()
    few = spec.mla.heads <= FEW_HEADS
    return (*((SHORT_LATENT,) if latent else ()),
            *((PLAIN_LATENT if few else SHORT,) if tiles else ()))  # fmt: skip


def _attends_by_tiles(spec: ModelSpec, device: Device, caches: tuple[str, str]) -> bool:
    """Whether single tokens attend a tile of positions at a time: groups of heads and types of
    caches that fit, or latent attention on matrix cores."""
    k, v = (kind.upper() for kind in caches)
    if spec.mla:
        m, limits = spec.mla, device.limits
        sizes = mla_attention_coop.sizes(m.heads, m.rank, m.n_rot, limits)
        return mla_attention_coop.needs(limits) and sizes != (0, 0)
    return all(
        attention_tiles_q8.suits(s.n_head // s.n_head_kv, s.head_dim, device.limits, k, v)
        for s in spec.layers
    )


def _latent_form(spec: ModelSpec, device: Device) -> str:
    """How a token takes latent attention in short contexts: PlanOptions.latent."""
    if spec.mla:
        head, limits = _head(spec.mla), device.limits
        if not limits.software and mla_parts.fits(head, limits):
            return "parts"
        if mla_token_launch.suits(head, limits):
            return "head"
        return "core" if mla_token_launch.suits(replace(head, q_rank=0), limits) else ""
    return ""


def _head(m: MlaSpec) -> mla_token_launch.Head:
    return mla_token_launch.Head(m.rank, m.nope, m.n_rot, m.value, m.q_rank)


def choose_splits(units: int, n_head_kv: int) -> int:
    """Context splits of decode attention: about one workgroup per compute unit."""
    splits = 1
    while splits < MAX_SPLITS and splits * 2 * n_head_kv <= units:
        splits *= 2
    return splits


def _attends_on_matrix_cores(
    products: Products, spec: ModelSpec, device: Device, caches: tuple[str, str]
) -> bool:
    """Whether batches attend on matrix cores: a size of heads or latents that fits, and no float32
    cache, which is asked for where float16 is not exact enough."""
    if (
        products.batches != "f16" or "f32" in caches
        or not attention_prefill_coop.needs(device.limits)
    ):  # fmt: skip
        return False
    if spec.mla:
        return mla_prefill_coop.suits(spec.mla.rank, spec.mla.n_rot, device.limits)
    return all(
        attention_prefill_coop.suits(s.head_dim, device.limits) for s in spec.layers
        if s.head_dim <= attention_prefill_coop.MAX_DIM
    )
