"""What a model is, from its metadata and tensor table alone: sizes, rope, bytes and parameters.

Key names and defaults are those of GGUF (ggml/docs/gguf.md) and llama.cpp's load_hparams. Absent
optional keys that change results leave a note in `ModelSpec.notes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .checks import check_tensors
from .container import Container
from .errors import ModelError
from .keys import Keys
from .rope import RopeSpec
from .rope_keys import rope_spec

__all__ = ["ModelSpec", "RopeSpec", "check_tensors", "model_spec"]

MAX_LAYERS, MAX_HEADS, MAX_WIDTH = 1024, 4096, 1 << 20
MAX_CTX = (1 << 31) - 1
CACHE_BYTES = {"F32": 4.0, "F16": 2.0, "Q8_0": 34 / 32}


@dataclass(frozen=True)
class ModelSpec:
    """Sizes of a decoder-only transformer with grouped-query attention and a gated FFN.

    `n_params` and `weight_bytes` count every tensor of the file once, as llama-bench does.
    """

    arch: str
    name: str
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_vocab: int  # rows of token_embd.weight, the length of the logits
    n_ctx_train: int
    eps: float
    rope: RopeSpec
    tied: bool  # the output matrix is token_embd.weight
    window: int | None = None  # sliding attention window, counting the current token
    n_params: int = 0
    weight_bytes: int = 0
    idle_bytes: int = 0  # of token_embd.weight when there is an output.weight
    notes: tuple[str, ...] = ()

    @property
    def q_dim(self) -> int:
        """Values of all query heads of one token."""
        return self.n_head * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Values of all key heads (and of all value heads) of one token."""
        return self.n_head_kv * self.head_dim

    def kv_bytes_per_token(self, dtype: str = "F16") -> int:
        """Bytes of keys and values that one token takes in all layers."""
        return int(2 * self.n_layer * self.kv_dim * CACHE_BYTES[dtype])

    def decode_bytes(self, position: int, dtype: str = "F16") -> int:
        """Bytes that one decode step must read: all weights used, and the keys and values so far.

        Of an untied embedding only one row is read, so the table does not count.
        """
        return self.weight_bytes - self.idle_bytes + position * self.kv_bytes_per_token(dtype)


def model_spec(c: Container) -> ModelSpec:
    """Validate metadata and tensor table of a container. Raises ModelError naming what is wrong."""
    top = Keys(c, "")
    arch = top.text("general.architecture")
    if arch not in ARCHITECTURES:
        raise top.fail(
            "general.architecture",
            f"architecture {arch!r} is not supported; supported: {', '.join(ARCHITECTURES)}",
        )
    if top.text("general.type", "model") == "adapter":
        raise top.fail("general.type", "the file is a LoRA adapter, not a model")
    if not c.tensors:
        raise ModelError(c.path, "holds no tensors: a vocabulary without a model")
    spec = ARCHITECTURES[arch](c, Keys(c, f"{arch}."))
    check_tensors(c, spec)
    return spec


def _llama(c: Container, k: Keys) -> ModelSpec:
    _refuse_experts(c, k)
    n_layer = k.integer("block_count", 1, MAX_LAYERS)
    n_embd = k.integer("embedding_length", 1, MAX_WIDTH)
    n_head = k.uniform("attention.head_count", n_layer, 1, MAX_HEADS)
    n_head_kv = k.uniform("attention.head_count_kv", n_layer, 1, MAX_HEADS, n_head)
    if n_head % n_head_kv:
        raise k.fail("attention.head_count_kv", f"is {n_head_kv}, which does not divide the "
                                                f"{n_head} heads")  # fmt: skip
    n_ctx = k.integer("context_length", 1, MAX_CTX)
    head_dim = _head_dim(k, n_embd, n_head)
    rope, notes = rope_spec(c, k, head_dim, n_ctx)
    n_vocab, vocab_notes = _vocab(c)
    embd, tied = c.tensors.get("token_embd.weight"), "output.weight" not in c.tensors
    window = k.integer("attention.sliding_window", 0, MAX_CTX, 0)
    return ModelSpec(
        arch="llama",
        name=Keys(c, "").text("general.name", c.path.stem),
        n_layer=n_layer,
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_dim=head_dim,
        n_ff=k.uniform("feed_forward_length", n_layer, 1, MAX_WIDTH),
        n_vocab=n_vocab,
        n_ctx_train=n_ctx,
        eps=k.real("attention.layer_norm_rms_epsilon", 1e-12, 1.0),
        rope=rope,
        tied=tied,
        window=window or None,
        n_params=sum(t.elems for t in c.tensors.values()),
        weight_bytes=sum(t.nbytes for t in c.tensors.values()),
        idle_bytes=0 if tied or embd is None else embd.nbytes,
        notes=(*notes, *vocab_notes, *(["output.weight absent: tied to token_embd"] * tied)),
    )


def _refuse_experts(c: Container, k: Keys) -> None:
    problem = "architecture 'llama' with a mixture of experts is not supported"
    experts = k.integer("expert_count", 0, 1 << 16, 0)
    if experts:
        raise k.fail("expert_count", f"is {experts}: {problem}")
    for name in c.tensors:
        if "_exps." in name:
            raise c.fail(name, problem)


def _head_dim(k: Keys, n_embd: int, n_head: int) -> int:
    """key_length, or n_embd / n_head; value_length must agree (llama.cpp asserts it for llama)."""
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


def _vocab(c: Container) -> tuple[int, list[str]]:
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


ARCHITECTURES: dict[str, Callable[[Container, Keys], ModelSpec]] = {"llama": _llama}
