"""The keys that most families share, read into a ModelSpec; a family adds what is its own.

Key names and defaults are those of GGUF (ggml/docs/gguf.md) and llama.cpp's load_hparams. Absent
optional keys that change results leave a note in `ModelSpec.notes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .checks import layer_tensors
from .container import Container
from .keys import Keys
from .rope_keys import rope_spec
from .sampler import MAX_SUPPRESSED
from .spec_model import LayerSpec, ModelSpec

MAX_LAYERS, MAX_HEADS, MAX_WIDTH = 1024, 4096, 1 << 20
MAX_CTX = (1 << 31) - 1


def common_spec(c: Container, k: Keys, mode: str, **changes: Any) -> ModelSpec:
    """A spec of equal layers that see the whole context, with one rope of pairs in `mode`.

    `changes` replaces fields, most often `layers`.
    """
    layers = changes.pop("layers", None) or layer_specs(k)
    n_ctx = k.integer("context_length", 1, MAX_CTX)
    ropes, notes = changes.pop("ropes", None), list(changes.pop("notes", ()))
    if ropes is None:
        dim = next((s.head_dim for s in layers if s.rope == 0), layers[0].head_dim)
        rope, rope_notes = rope_spec(c, k, dim, n_ctx, mode)
        ropes, notes = (rope,), rope_notes + notes
    n_vocab, vocab_notes = vocabulary(c)
    embd, tied = c.tensors.get("token_embd.weight"), "output.weight" not in c.tensors
    fields: dict[str, Any] = {
        "arch": k.prefix.rstrip("."),
        "name": Keys(c, "").text("general.name", c.path.stem),
        "n_layer": len(layers),
        "n_embd": k.integer("embedding_length", 1, MAX_WIDTH),
        "n_vocab": n_vocab,
        "n_ctx_train": n_ctx,
        "eps": k.real("attention.layer_norm_rms_epsilon", 1e-12, 1.0),
        "layers": layers,
        "ropes": ropes,
        "suppressed": suppressed(c, n_vocab),
        "tied": tied,
        "has": layer_tensors(c),
        "tensors": frozenset(c.tensors),
        "n_params": sum(t.elems for t in c.tensors.values()),
        "weight_bytes": sum(t.nbytes for t in c.tensors.values()),
        "idle_bytes": 0 if tied or embd is None else embd.nbytes,
        "notes": (*notes, *vocab_notes, *(["output.weight absent: tied to token_embd"] * tied)),
    }
    return ModelSpec(**(fields | changes))


def layer_specs(k: Keys, window: int = 0) -> tuple[LayerSpec, ...]:
    """Equal layers; `window` is that of every one."""
    n_layer = k.integer("block_count", 1, MAX_LAYERS)
    n_embd = k.integer("embedding_length", 1, MAX_WIDTH)
    n_head = k.uniform("attention.head_count", n_layer, 1, MAX_HEADS)
    n_head_kv = k.uniform("attention.head_count_kv", n_layer, 1, MAX_HEADS, n_head)
    check_groups(k, n_head, n_head_kv)
    dim = head_dim(k, n_embd, n_head)
    n_ff = k.uniform("feed_forward_length", n_layer, 1, MAX_WIDTH)
    return tuple(LayerSpec(i, n_head, n_head_kv, dim, n_ff, window) for i in range(n_layer))


def local_layers(k: Keys, n_layer: int, period: int) -> tuple[bool, ...]:
    """Which layers see a window only: an array of the file, or all but every n-th layer, where n
    is the file's or `period`; 0 is all of them."""
    key = "attention.sliding_window_pattern"
    value = k.get(key)
    if isinstance(value, np.ndarray | list):
        if len(value) != n_layer:
            raise k.fail(key, f"expected {n_layer} values, one per layer, got {len(value)}")
        return tuple(bool(v) for v in value)
    n = k.integer(key, 0, MAX_LAYERS, period)
    return tuple(n == 0 or i % n < n - 1 for i in range(n_layer))


def named_window(k: Keys, default: int) -> tuple[int, tuple[str, ...]]:
    """The window of layers that have one, and a note where the file of a family whose models have
    windows does not say how large."""
    key = "attention.sliding_window"
    found = k.integer(key, 0, MAX_CTX, default)
    used = f"{default} used" if default else "all layers see the whole context"
    return found, () if k.get(key) is not None else (f"{k.prefix}{key} absent: {used}",)


def with_windows(
    k: Keys, layers: tuple[LayerSpec, ...], period: int, window: int, rope: int = 0
) -> tuple[LayerSpec, ...]:
    """Layers of which the local ones get a window and the rope number `rope`."""
    local = local_layers(k, len(layers), period)
    return tuple(
        replace(layer, window=window, rope=rope) if is_local else layer
        for layer, is_local in zip(layers, local, strict=True)
    )


def check_groups(k: Keys, n_head: int, n_head_kv: int) -> None:
    """Refuse key/value heads that are no equal share of the query heads."""
    if n_head % n_head_kv:
        raise k.fail("attention.head_count_kv", f"is {n_head_kv}, which does not divide the "
                                                f"{n_head} heads")  # fmt: skip


def head_dim(k: Keys, n_embd: int, n_head: int) -> int:
    """key_length, or n_embd / n_head; value_length must agree."""
    if k.get("attention.key_length") is None and n_embd % n_head:
        raise k.fail(
            "attention.head_count",
            f"is {n_head}, which does not divide embedding_length {n_embd}, and "
            "attention.key_length is absent",
        )
    dim = k.integer("attention.key_length", 1, 1 << 16, n_embd // n_head)
    value = k.integer("attention.value_length", 1, 1 << 16, n_embd // n_head)
    if value != dim:
        raise k.fail("attention.value_length", f"is {value}, expected the key length {dim}")
    return dim


def vocabulary(c: Container) -> tuple[int, list[str]]:
    """Rows of token_embd.weight against the token list: padding rows are fine, missing are not."""
    embd = c.tensors.get("token_embd.weight")
    tokens = c.metadata.count("tokenizer.ggml.tokens")
    if embd is None:
        return tokens or 0, []  # check_tensors lists it with all others that are missing
    if len(embd.shape) != 2:
        raise c.fail("token_embd.weight", f"expected 2 dimensions, got shape {embd.shape}")
    rows = embd.shape[0]
    if tokens is None or tokens == rows:
        return rows, []
    if tokens > rows:
        raise c.fail("token_embd.weight", f"has {rows} rows, the vocabulary has {tokens} tokens")
    return rows, [f"token_embd has {rows - tokens} rows more than the vocabulary has tokens"]


def suppressed(c: Container, n_vocab: int) -> tuple[int, ...]:
    """The ids that the file says are never to be drawn, ascending and each once; the range of ids
    and the number are checked."""
    top, key = Keys(c, ""), "tokenizer.ggml.suppress_tokens"
    value = top.get(key)
    if value is None or n_vocab == 0:  # without an embedding, check_tensors says so
        return ()
    ids = np.asarray(value)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise top.fail(key, f"expected an array of token ids, got {value!r:.60}")
    ids = np.unique(ids)
    outside = ids[(ids < 0) | (ids >= n_vocab)]
    if outside.size:
        raise top.fail(key, f"id {outside[0]} is outside the vocabulary of {n_vocab} tokens")
    if ids.size > MAX_SUPPRESSED:
        raise top.fail(key, f"has {ids.size} ids; at most {MAX_SUPPRESSED} are supported")
    if ids.size == n_vocab:
        raise top.fail(key, "names every token: none is left to draw")
    return tuple(int(i) for i in ids)


def refuse_experts(c: Container, k: Keys) -> None:
    """For families whose layers are dense here."""
    problem = f"architecture {k.prefix.rstrip('.')!r} with a mixture of experts is not supported"
    experts = k.integer("expert_count", 0, 1 << 16, 0)
    if experts:
        raise k.fail("expert_count", f"is {experts}: {problem}")
    for name in c.tensors:
        if "_exps." in name:
            raise c.fail(name, problem)
