"""The models that tests run: TINY (random weights) and CYCLE (a chosen token order for ever).

TINY: arch llama, 2 layers, 512 wide, 4 heads of 128 on 2 key-value heads, 288 tokens. CYCLE is
TINY with attention and FFN switched off: token t is the one-hot vector t and output row j is the
one-hot of j's predecessor, so each token is followed by the next one of the order (its logit is
sqrt(512) = 22.6 against 0) at any temperature. Everything is built in memory from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf_bytes
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from gguf_bytes import Blob
from kquants import QUANTIZERS

Floats = npt.NDArray[np.float32]
Tensors = dict[str, Floats]
Piece = int | str | bytes

UNK, BOS, EOS = 0, 1, 2
BYTE0 = 3  # id of <0x00>; byte b is id BYTE0 + b
CONTROLS = ("<|eot_id|>", "<|im_end|>", "<|end|>")
WORDS = (
    "▁", "a", "d", "e", "h", "i", "l", "m", "n", "o", "r", "s", "t", "u", "w", "x", "y",
    "he", "th", "the", "▁the", "an", "and", "▁and", "in", "ll",
)  # fmt: skip
TOKENS = ("<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *CONTROLS, *WORDS)
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # tokenizer.ggml.token_type


@dataclass
class Model:
    """Metadata and float32 tensors of a file to be written; change them before writing.

    `formats` gives the format of single tensors; others of 2 dimensions take `quant`, vectors F32.
    """

    metadata: dict[str, Any]
    tensors: Tensors
    quant: str = "F16"
    formats: dict[str, str] = field(default_factory=dict)

    def blobs(self) -> list[Blob]:
        """The tensors, quantized."""
        return [self._blob(name, x) for name, x in self.tensors.items()]

    def _blob(self, name: str, x: Floats) -> Blob:
        fmt = self.formats.get(name, self.quant if x.ndim > 1 else "F32")
        return Blob(name, x.shape, int(GGMLQuantizationType[fmt]), encode(x, fmt))

    def write(self, path: Path, **how: Any) -> Path:
        """Write one file; `how` goes to gguf_bytes (version, alignment, order, pad_last)."""
        metadata = dict(self.metadata)
        if how.get("alignment", 32) != 32:
            metadata.setdefault("general.alignment", how["alignment"])
        path.write_bytes(gguf_bytes.gguf_bytes(metadata, self.blobs(), **how))
        return path

    def split(self, folder: Path, stem: str = "tiny", per_shard: int = 4) -> list[Path]:
        """Write shards of up to `per_shard` tensors, named and numbered like llama-gguf-split."""
        blobs = self.blobs()
        parts = [blobs[i : i + per_shard] for i in range(0, len(blobs), per_shard)]
        paths = []
        for i, part in enumerate(parts):
            keys = {} if i else dict(self.metadata)
            keys["split.no"] = gguf_bytes.Typed(2, i)
            keys["split.count"] = gguf_bytes.Typed(2, len(parts))
            keys["split.tensors.count"] = gguf_bytes.Typed(5, len(blobs))
            path = folder / f"{stem}-{i + 1:05d}-of-{len(parts):05d}.gguf"
            path.write_bytes(gguf_bytes.gguf_bytes(keys, part))
            paths.append(path)
        return paths


def encode(x: Floats, fmt: str) -> bytes:
    """The bytes of an array in a format."""
    if fmt in QUANTIZERS:
        return QUANTIZERS[fmt](x.reshape(-1, 256)).tobytes()
    return quantize(np.ascontiguousarray(x), GGMLQuantizationType[fmt]).tobytes()


def vocabulary(n: int = len(TOKENS)) -> dict[str, Any]:
    """Tokenizer keys: SPM with byte fallback, `n` tokens; more than 288 are filled with words."""
    tokens = [*TOKENS, *(f"▁w{i:06d}" for i in range(len(TOKENS), n))][:n]
    special = {
        "<unk>": UNKNOWN,
        "<s>": CONTROL,
        "</s>": CONTROL,
        **dict.fromkeys(CONTROLS, CONTROL),
    }
    types = [BYTE if t.startswith("<0x") else special.get(t, NORMAL) for t in tokens]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array(
            [-float(i) if t == NORMAL else 0.0 for i, t in enumerate(types)], np.float32
        ),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.unknown_token_id": UNK,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,  # so that the prompt "h" is the token "h"
    }


def token_ids(pieces: Sequence[Piece] | str, tokens: Sequence[str] = TOKENS) -> list[int]:
    """Ids of pieces: an id, a token's text, or text and bytes spelt out in byte tokens."""
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, int):
            ids.append(piece)
        elif isinstance(piece, str) and piece in tokens:
            ids.append(tokens.index(piece))
        else:
            raw = piece.encode() if isinstance(piece, str) else piece
            ids += [BYTE0 + b for b in raw]
    return ids


def tiny(
    *,
    quant: str = "F16",
    tied: bool = False,
    vocab: int = 288,
    n_layer: int = 2,
    n_embd: int = 512,
    n_head: int = 4,
    n_head_kv: int = 2,
    n_ff: int = 512,
    n_ctx: int = 131072,
    seed: int = 7,
    metadata: Mapping[str, Any] | None = None,
    formats: Mapping[str, str] | None = None,
) -> Model:
    """TINY. `metadata` replaces, adds or (None) removes keys; `formats` sets single tensors."""
    keys = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": n_layer,
        "llama.context_length": n_ctx,
        "llama.embedding_length": n_embd,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_head,
        "llama.attention.head_count_kv": n_head_kv,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": n_embd // n_head,
        **vocabulary(vocab),
    }
    keys |= metadata or {}
    kv = n_embd // n_head * n_head_kv
    rng = np.random.default_rng(seed)
    tensors = {"token_embd.weight": _normal(rng, vocab, n_embd)}
    for i in range(n_layer):
        tensors |= _layer(rng, f"blk.{i}.", n_embd, kv, n_ff)
    tensors["output_norm.weight"] = _gain(rng, n_embd)
    if not tied:
        tensors["output.weight"] = _normal(rng, vocab, n_embd, 3.0)
    kept = {k: v for k, v in keys.items() if v is not None}
    return Model(kept, tensors, quant, dict(formats or {}))


def _normal(rng: np.random.Generator, rows: int, cols: int, gain: float = 1.0) -> Floats:
    return rng.standard_normal((rows, cols), np.float32) * np.float32(gain / np.sqrt(cols))


def _gain(rng: np.random.Generator, n: int) -> Floats:
    return 1 + 0.1 * rng.standard_normal(n, np.float32)


def _layer(rng: np.random.Generator, name: str, n_embd: int, kv: int, n_ff: int) -> Tensors:
    return {
        name + "attn_norm.weight": _gain(rng, n_embd),
        name + "attn_q.weight": _normal(rng, n_embd, n_embd, 2.0),
        name + "attn_k.weight": _normal(rng, kv, n_embd, 2.0),
        name + "attn_v.weight": _normal(rng, kv, n_embd),
        name + "attn_output.weight": _normal(rng, n_embd, n_embd),
        name + "ffn_norm.weight": _gain(rng, n_embd),
        name + "ffn_gate.weight": _normal(rng, n_ff, n_embd),
        name + "ffn_up.weight": _normal(rng, n_ff, n_embd),
        name + "ffn_down.weight": _normal(rng, n_embd, n_ff),
    }


def cycle(
    order: Sequence[Piece] | str, *, scale: float = 1.0, eos: Piece | None = None, **how: Any
) -> Model:
    """CYCLE over the pieces of `order` (see token_ids), each used once; then from the start again.

    `scale` flattens the distribution; `eos` sets the end token; `how` goes to `tiny`.
    """
    m = tiny(**how)
    ids = token_ids(order, m.metadata["tokenizer.ggml.tokens"])
    if len(set(ids)) != len(ids):
        raise ValueError(f"a token occurs twice in the order: {ids}")
    n_vocab, n_embd = m.tensors["token_embd.weight"].shape
    output = np.zeros((n_vocab, n_embd), np.float32)
    for before, after in zip(ids, ids[1:] + ids[:1], strict=True):
        output[after, before] = scale
    m.tensors["token_embd.weight"] = np.eye(n_vocab, n_embd, dtype=np.float32)
    m.tensors["output.weight"] = output
    for name, x in m.tensors.items():
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            x[:] = 0
        elif name.endswith("norm.weight"):
            x[:] = 1
    if eos is not None:
        (m.metadata["tokenizer.ggml.eos_token_id"],) = token_ids([eos])
    return m


Edit = Callable[[Model], None]


def write_tiny(path: Path, *, edit: Edit | None = None, alignment: int = 32, **how: Any) -> Path:
    """Write TINY; `edit` may change the model first."""
    return _write(tiny(**how), path, edit, alignment)


def write_cycle(
    path: Path,
    order: Sequence[Piece] | str,
    *,
    edit: Edit | None = None,
    alignment: int = 32,
    **how: Any,
) -> Path:
    """Write CYCLE over `order`; `edit` may change the model first."""
    return _write(cycle(order, **how), path, edit, alignment)


def _write(m: Model, path: Path, edit: Edit | None, alignment: int) -> Path:
    if edit is not None:
        edit(m)
    return m.write(path, alignment=alignment)
