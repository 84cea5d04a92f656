"""Three tiny model files and ways to damage them; case N of a seed is always the same."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fixtures import Model, tiny
from gguf_bytes import ARRAY, CODES, STRING
from vocab_source import bpe

from kompute_llm.engine.container import open_model

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SIZES: dict[str, Any] = {"n_embd": 64, "n_ff": 64, "n_head": 4, "n_head_kv": 2, "n_ctx": 4096}
# What a number of the header is replaced by, beside its neighbours and other numbers of the file
NUMBERS = (0, 1, 2, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62,
           1 << 63, (1 << 64) - 32, (1 << 64) - 1)  # fmt: skip
FLOATS = tuple(
    int.from_bytes(struct.pack("<f", x), "little")
    for x in (float("nan"), float("inf"), -1.0, 0.5, 1e-38, 1e38)
)


def spm_model() -> Model:
    """SPM vocabulary, F16, linear rope scaling, an output matrix of its own."""
    return tiny(**SIZES, metadata={"llama.rope.scaling.factor": 2.0})


def bpe_model() -> Model:
    """BPE vocabulary with a chat template, several formats, tied, YaRN and frequency factors."""
    keys = bpe({"<|im_end|>": 3, "<s>": 3}, bos_token_id=266, eos_token_id=265).metadata
    m = tiny(
        **SIZES, quant="Q8_0", tied=True, vocab=len(keys["tokenizer.ggml.tokens"]),
        formats={"blk.0.attn_q.weight": "Q4_0", "blk.1.ffn_up.weight": "Q5_1"},
        metadata={"tokenizer.ggml.scores": None, "tokenizer.chat_template": TEMPLATE,
                  "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0},
    )  # fmt: skip
    m.metadata |= keys | {"tokenizer.ggml.token_type": np.array(
        keys["tokenizer.ggml.token_type"], np.int32)}  # fmt: skip
    m.tensors["rope_freqs.weight"] = np.ones(8, np.float32)
    return m


def split_model() -> Model:
    """K-quants and a window, to be written as two shards."""
    return tiny(
        n_embd=256, n_ff=256, n_layer=1, n_ctx=512, quant="Q4_K",
        formats={"output.weight": "Q6_K", "blk.0.ffn_down.weight": "Q5_K"},
        metadata={"llama.attention.sliding_window": 8},
    )  # fmt: skip


Number = tuple[str, int, int]  # file, offset, bytes


@dataclass(frozen=True)
class Base:
    """Whole bytes of the files of one model. `numbers` are the counts, lengths and types of the
    headers, `values` single values, dimensions, formats and offsets, `inner` what lies within
    arrays, `ends` where the headers end."""

    files: dict[str, bytes]
    given: str  # the file that is opened
    numbers: list[Number]
    values: list[Number]
    inner: list[Number]
    ends: dict[str, int]


def bases(folder: Path, model: Path | None = None) -> list[Base]:
    """Write the three models, or a copy of another one, and read them back."""
    if model is not None:
        (folder / model.name).write_bytes(model.read_bytes())
        return [_base([folder / model.name])]
    out = []
    for name, make in (("spm", spm_model), ("bpe", bpe_model)):
        out.append(_base([make().write(folder / f"{name}.gguf")]))
    out.append(_base(split_model().split(folder, per_shard=6)))
    return out


def _base(paths: list[Path]) -> Base:
    base = Base({p.name: p.read_bytes() for p in paths}, paths[0].name, [], [], [], {})
    with open_model(paths[0]) as c:
        for i, path in enumerate(paths):
            base.ends[path.name] = min(t.offset for t in c.tensors.values() if t.shard == i)
            _Walk(path.name, base).header()
    return base


class _Walk:
    """Collects the numbers of one header: a reader of its own."""

    def __init__(self, name: str, base: Base) -> None:
        self.name, self.base, self.at = name, base, 4  # after the magic

    def take(self, size: int, kept: list[Number]) -> int:
        kept.append((self.name, self.at, size))
        self.at += size
        return int.from_bytes(self.base.files[self.name][self.at - size : self.at], "little")

    def count(self, size: int = 8) -> int:
        return self.take(size, self.base.numbers)

    def string(self, kept: list[Number]) -> None:
        length = self.take(8, kept)
        self.at += length

    def value(self, kind: int, inside: bool = False) -> None:
        if kind == STRING:
            self.string(self.base.inner if inside else self.base.numbers)
        elif kind == ARRAY:
            elem = self.count(4)
            for _ in range(self.count()):
                self.value(elem, inside=True)
        else:
            kept = self.base.inner if inside else self.base.values
            self.take(struct.calcsize(f"<{CODES[kind]}"), kept)

    def header(self) -> None:
        self.count(4)
        n_tensors, n_keys = self.count(), self.count()
        for _ in range(n_keys):
            self.string(self.base.numbers)
            self.value(self.count(4))
        for _ in range(n_tensors):
            self.string(self.base.numbers)
            for _ in range(self.count(4)):
                self.take(8, self.base.values)
            self.take(4, self.base.values)
            self.take(8, self.base.values)


Damage = Callable[[Base, np.random.Generator], tuple[str, bytes]]


def flip(base: Base, rng: np.random.Generator) -> tuple[str, bytes]:
    """One to four bytes, mostly of the header, or one bit of each."""
    name = str(rng.choice(list(base.files)))
    data = bytearray(base.files[name])
    end = base.ends[name] if rng.random() < 0.7 else len(data)
    for at in rng.integers(0, end, rng.integers(1, 5)):
        data[at] = rng.integers(256) if rng.random() < 0.5 else data[at] ^ 1 << rng.integers(8)
    return name, bytes(data)


def cut(base: Base, rng: np.random.Generator) -> tuple[str, bytes]:
    """The end is missing, or a few bytes of the header are missing or doubled."""
    name = str(rng.choice(list(base.files)))
    data, end = base.files[name], base.ends[name]
    at, n, kind = int(rng.integers(end)), int(rng.integers(1, 17)), rng.integers(4)
    if kind == 0:
        return name, data[:at]
    if kind == 1:
        return name, data[: int(rng.integers(len(data)))]
    return name, data[:at] + (data[at + n :] if kind == 2 else data[at : at + n] + data[at:])


def renumber(base: Base, rng: np.random.Generator) -> tuple[str, bytes]:
    """A count, length or type becomes another: huge, zero, near by, or one from elsewhere."""
    return _replace(base, rng, base.numbers, NUMBERS)


def revalue(base: Base, rng: np.random.Generator) -> tuple[str, bytes]:
    """A value becomes another that keeps the header readable."""
    among = base.inner if rng.random() < 0.2 else base.values
    return _replace(base, rng, among, NUMBERS + FLOATS)


def poison(base: Base, rng: np.random.Generator) -> tuple[str, bytes]:
    """Weights and scales that are NaN, infinite or huge."""
    name = str(rng.choice(list(base.files)))
    data = bytearray(base.files[name])
    for at in rng.integers(base.ends[name], len(data) - 4, rng.integers(1, 40)):
        raw = (b"\xff\x7f", b"\0\x7c", b"\xff\xfb", b"\0\0\xc0\x7f")[rng.integers(4)]
        start = int(at) // 2 * 2
        data[start : start + len(raw)] = raw
    return name, bytes(data)


def _replace(
    base: Base, rng: np.random.Generator, among: list[Number], values: tuple[int, ...]
) -> tuple[str, bytes]:
    """One or two of the numbers replaced."""

    def pick(among: list[Number]) -> Number:
        return among[rng.integers(len(among))]

    name, at, size = pick(among)
    data = bytearray(base.files[name])
    for _ in range(rng.integers(1, 3)):
        old = int.from_bytes(data[at : at + size], "little")
        other, start, length = pick(base.numbers + base.values)
        copied = int.from_bytes(base.files[other][start : start + length], "little")
        choices = (*values, old - 1, old + 1, old * 2, old // 2, copied, copied)
        new = choices[rng.integers(len(choices))] % (1 << 8 * size)
        data[at : at + size] = new.to_bytes(size, "little")
        _, at, size = pick([n for n in among if n[0] == name])
    return name, bytes(data)


DAMAGES: tuple[Damage, ...] = (flip, cut, renumber, revalue, revalue, poison)


def make_case(bases: list[Base], seed: int, n: int, folder: Path) -> Path:
    """Write case `n` into `folder`; returns the file to open."""
    rng = np.random.default_rng((seed, n))
    base = bases[n % len(bases)]
    damage = DAMAGES[n // len(bases) % len(DAMAGES)]
    name, data = damage(base, rng)
    for other, whole in base.files.items():
        (folder / other).write_bytes(data if other == name else whole)
    return folder / base.given
