"""The keys of latent attention, read into a MlaSpec; names and defaults as in llama.cpp."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .container import Container
from .keys import Keys
from .rope import RopeSpec
from .rope_keys import rope_spec

if TYPE_CHECKING:
    from .shapes import Shapes
    from .spec_model import LayerSpec, ModelSpec

MAX_RANK = 1 << 16


@dataclass(frozen=True)
class MlaSpec:
    """Heads of nope + n_rot values whose keys and values are made from a latent of `rank` values.

    `q_rank`: values of the compressed query, 0 where queries are projected at once. `value`: values
    of a head's result.
    """

    heads: int
    q_rank: int
    rank: int
    nope: int
    n_rot: int
    value: int

    @property
    def head(self) -> int:
        """Values of a head's query."""
        return self.nope + self.n_rot

    @property
    def width(self) -> int:
        """Values of a position in the cache, and of an absorbed query."""
        return self.rank + self.n_rot

    @property
    def first(self) -> int:
        """Values before the latent in what the first product makes."""
        return self.q_rank or self.heads * self.head


def mla_spec(c: Container, k: Keys, n_layer: int) -> MlaSpec:
    """Sizes of latent attention; models must have k_b and v_b apart (made since April 2025)."""
    if "blk.0.attn_kv_b.weight" in c.tensors:
        raise c.fail("blk.0.attn_kv_b.weight", "files with k_b and v_b in one tensor are not "
                                               "supported: convert the model anew")  # fmt: skip
    heads = k.uniform("attention.head_count", n_layer, 1, 4096)
    rank = k.integer("attention.kv_lora_rank", 1, MAX_RANK)
    n_rot = k.integer("rope.dimension_count", 2, 4096)
    head = k.integer("attention.key_length_mla", n_rot + 1, MAX_RANK)
    value = k.integer("attention.value_length_mla", 1, MAX_RANK)
    q_rank = k.integer("attention.q_lora_rank", 0, MAX_RANK, 0)
    if "blk.0.attn_q.weight" in c.tensors:  # the small models name a rank that they do not use
        q_rank = 0
    for name, n, step in (("attention.kv_lora_rank", rank, 32), ("rope.dimension_count", n_rot, 2),
                          ("attention.key_length_mla", head - n_rot, 32),
                          ("attention.value_length_mla", value, 16)):  # fmt: skip
        if n % step:
            raise k.fail(name, f"gives {n} values, expected a multiple of {step}")
    return MlaSpec(heads, q_rank, rank, head - n_rot, n_rot, value)


def latent_rope(
    c: Container, k: Keys, n_ctx: int, head: int, log_scale: float
) -> tuple[RopeSpec, float, list[str]]:
    """Rotation without extra magnitude, the scale of scores that stands for it, notes.

    `log_scale` is what the file's yarn_log_multiplier means: with it, YaRN softens the scores by
    (1 + log_scale ln factor)^2 (llama.cpp, TAG_DEEPSEEK2_YARN_LOG_MUL_FIX).
    """
    rope, notes = rope_spec(c, k, head, n_ctx)
    if rope.scaling != "yarn":
        return rope, head**-0.5, notes
    stretch = math.log(rope.factor) if rope.factor > 1 else 0.0
    rope = replace(rope, attn_factor=1 / (1 + 0.1 * stretch))
    return rope, (1 + log_scale * stretch) ** 2 * head**-0.5, notes


def latent_shapes(s: ModelSpec, layer: LayerSpec) -> Shapes:
    """The tensors of latent attention."""
    m, n = s.mla, s.n_embd
    assert m is not None
    shapes: Shapes = {
        "attn_kv_a_mqa.weight": (m.width, n), "attn_kv_a_norm.weight": (m.rank,),
        "attn_k_b.weight": (m.heads, m.rank, m.nope), "attn_v_b.weight": (m.heads, m.value, m.rank),
        "attn_output.weight": (n, m.heads * m.value),
    }  # fmt: skip
    if m.q_rank:
        return shapes | {
            "attn_q_a.weight": (m.q_rank, n), "attn_q_a_norm.weight": (m.q_rank,),
            "attn_q_b.weight": (m.heads * m.head, m.q_rank),
        }  # fmt: skip
    return shapes | {"attn_q.weight": (m.heads * m.head, n)}
