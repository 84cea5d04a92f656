"""What a model file holds, whether it can be run or not: sizes, formats by group, vocabulary.

Everything comes from the header. Keys of a wrong type or value are shown as they are: that they
cannot be used is said by `model_spec`, `build_tokenizer` and the chat template, whose messages
are kept as `problem`.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import LlamaFileType

from .chat import TEMPLATE, chat_template
from .container import Container
from .errors import KomputeLLMError
from .spec_common import suppressed
from .tensor import Tensor
from .tokenizer import Tokenizer, build_tokenizer
from .vocab import PREFIX

# Group of tensors -> a pattern of their names; the first that is found counts.
GROUPS: tuple[tuple[str, str], ...] = (
    ("embedding", r"^(token_embd\.|per_layer_token_embd|position_embd|token_types)"),
    ("output", r"^output(\.|_(?!norm))"),
    ("norms", r"norm"),
    ("experts", r"_exps|_shexp|_chexps|ffn_gate_inp|exp_probs"),
    ("state space", r"ssm_|time_mix|shortconv"),
    ("attention", r"attn|indexer"),
    ("feed-forward", r"ffn_|channel_mix"),
    ("rope factors", r"rope_"),
)
OTHER = "other"
SPECIAL = ("bos", "eos", "eot", "eom", "unknown", "padding")
MAX_TEXT = 200  # characters of a value in a summary


@dataclass(frozen=True)
class FormatRow:
    """Tensors of one group in one format: how many, their values and bytes."""

    group: str
    format: str
    tensors: int
    values: int
    bytes: int


def group_of(name: str) -> str:
    """The group of a tensor."""
    return next((group for group, pattern in GROUPS if re.search(pattern, name)), OTHER)


def format_rows(tensors: Iterable[Tensor]) -> list[FormatRow]:
    """Formats by group, groups in the order of GROUPS, the largest format of a group first."""
    found: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    for t in tensors:
        found[group_of(t.name), t.format_name].append(t)
    rows = [
        FormatRow(group, fmt, len(ts), sum(t.elems for t in ts), sum(t.nbytes for t in ts))
        for (group, fmt), ts in found.items()
    ]
    order = [group for group, _ in GROUPS] + [OTHER]
    return sorted(rows, key=lambda r: (order.index(r.group), -r.bytes, r.format))


def short(value: Any) -> Any:
    """A value as a summary shows it: one number of an array of equals, "2 to 8" of others."""
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iuf":
        low, high = value.min().item(), value.max().item()
        return low if low == high else f"{low} to {high}"
    if isinstance(value, np.ndarray | list):
        return f"{len(value)} values"
    return value[:MAX_TEXT] if isinstance(value, str) else value


class Contents:
    """A reader of one container; each method gives one part of the summary."""

    def __init__(self, container: Container) -> None:
        self.container = container
        arch = container.metadata.get("general.architecture")
        self.arch = arch if isinstance(arch, str) else ""

    def plain(self, error: KomputeLLMError) -> str:
        """A message without the path that it begins with."""
        return str(error).removeprefix(f"{self.container.path}: ")

    def get(self, key: str) -> Any:
        """A value in short, or None."""
        return short(self.container.metadata.get(key))

    def model(self) -> dict[str, Any]:
        """Name, architecture and size."""
        c, tensors = self.container, self.container.tensors.values()
        values, nbytes = sum(t.elems for t in tensors), sum(t.nbytes for t in tensors)
        return {
            "path": str(c.path),
            "files": len(c.paths),
            "file_bytes": sum(p.stat().st_size for p in c.paths),
            "name": self.get("general.name"),
            "architecture": self.arch or None,
            "kind": self.get("general.type"),
            "mix": self.mix(),
            "license": self.get("general.license"),
            "tensors": len(c.tensors),
            "parameters": values,
            "tensor_bytes": nbytes,
            "bits_per_weight": round(8 * nbytes / values, 3) if values else None,
        }

    def mix(self) -> str | None:
        """The name of the mix of formats that the quantizer was asked for ("Q4_K_M")."""
        number = self.container.metadata.get("general.file_type")
        with contextlib.suppress(ValueError):
            name = LlamaFileType(number).name if isinstance(number, int) else ""
            return name.removeprefix("MOSTLY_").removeprefix("ALL_") or None
        return None

    def sizes(self) -> dict[str, Any]:
        """Keys of the architecture that say how large it is, as far as they are there."""
        names = {
            "layers": "block_count", "context": "context_length", "width": "embedding_length",
            "ffn_width": "feed_forward_length", "heads": "attention.head_count",
            "kv_heads": "attention.head_count_kv", "head_size": "attention.key_length",
            "value_size": "attention.value_length", "window": "attention.sliding_window",
            "latent": "attention.kv_lora_rank", "experts": "expert_count",
            "experts_used": "expert_used_count", "experts_shared": "expert_shared_count",
            "rope_dims": "rope.dimension_count", "rope_base": "rope.freq_base",
            "rope_scaling": "rope.scaling.type", "rope_factor": "rope.scaling.factor",
            "rope_trained": "rope.scaling.original_context_length",
        }  # fmt: skip
        found = {name: self.get(f"{self.arch}.{key}") for name, key in names.items()}
        factors = [n for n in self.container.tensors if n.startswith("rope_f")]
        found["rope_tensors"] = ", ".join(factors)[:MAX_TEXT] or None
        return {name: value for name, value in found.items() if value is not None}

    def tokenizer(self) -> tuple[dict[str, Any], Tokenizer | None]:
        """The vocabulary's facts, and the tokenizer if it can be built."""
        meta = self.container.metadata
        facts: dict[str, Any] = {
            "kind": self.get(PREFIX + "model"),
            "pre": self.get(PREFIX + "pre"),
            "tokens": meta.count(PREFIX + "tokens"),
            "merges": meta.count(PREFIX + "merges"),
            "special": {}, "end_tokens": [], "suppressed": [], "problem": None, "notes": [],
        }  # fmt: skip
        try:
            tok = build_tokenizer(self.container)
        except KomputeLLMError as e:
            return facts | {"problem": self.plain(e)}, None
        special = {name: tok.vocab.special.get(name) for name in SPECIAL}
        facts["special"] = {n: [i, tok.piece(i)] for n, i in special.items() if i is not None}
        facts["end_tokens"] = [[i, tok.piece(i)] for i in sorted(tok.end_ids)]
        with contextlib.suppress(KomputeLLMError):  # model_spec says what is wrong with them
            found = suppressed(self.container, len(tok.vocab))
            facts["suppressed"] = [[i, tok.piece(i)] for i in found]
        facts["notes"] = list(tok.notes)
        return facts | {"adds_bos": tok.add_bos, "adds_eos": tok.add_eos}, tok

    def template(self, tokenizer: Tokenizer | None) -> dict[str, Any] | None:
        """The chat template: its length, names of others, and what is wrong with it."""
        meta = self.container.metadata
        names = [k[len(TEMPLATE) + 1 :] for k in meta if k.startswith(TEMPLATE + ".")]
        found = chat_template(self.container, tokenizer) if tokenizer else None
        if found is None:
            text = meta.get(TEMPLATE)
            if not isinstance(text, str) or not text.strip():
                return None
            return {"characters": len(text), "names": names, "problem": None}
        problem = None
        try:
            found.render([{"role": "user", "content": "Hello"}])
        except KomputeLLMError as e:
            problem = self.plain(e)
        return {"characters": len(found.source), "names": names, "problem": problem}
