"""The tensors a model must have, held against the tensors its file has, before any upload.

All missing tensors are named in one message, grouped by layer; tensors of a layer that the plan
would not use are refused, because a model run without its biases or norms is a different model.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from .blocks import BY_TYPE, FORMATS
from .container import Container
from .errors import ModelError
from .shapes import Shapes
from .spec_model import ModelSpec

MAX_LISTED = 12
_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
# Tables that old converters wrote although they follow from other keys.
_DERIVED = (
    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight",
    "attn_rot_embd.weight", "attn_rot_embd", "rope.freqs",
)  # fmt: skip


def layer_tensors(c: Container) -> frozenset[str]:
    """The names, without the layer's prefix, of the tensors that at least one layer has."""
    return frozenset(m[2] for m in map(_LAYER.fullmatch, c.tensors) if m)


def check_tensors(c: Container, s: ModelSpec, shapes: Shapes) -> None:
    """Raise ModelError unless the container holds every tensor of the plan, in a known format and
    with the expected shape, and no tensor of a layer that the plan would leave out."""
    _check_missing(c, shapes)
    _check_unused(c, s, shapes)
    wrong = [n for n, shape in shapes.items() if c.tensors[n].shape != shape]
    if wrong:
        n = wrong[0]
        raise c.fail(n, f"expected shape {shapes[n]}, got {c.tensors[n].shape}{_others(wrong)}")
    unknown = [n for n in shapes if c.tensors[n].type_id not in BY_TYPE]
    if unknown:
        kinds = sorted({c.tensors[n].format_name for n in unknown})
        raise c.fail(
            unknown[0],
            f"format {', '.join(kinds)} is not supported{_others(unknown)}; "
            f"supported: {', '.join(FORMATS)}",
        )


def _check_missing(c: Container, shapes: Shapes) -> None:
    missing = [n for n in shapes if n not in c.tensors]
    if missing:
        shards = f" in its {len(c.paths)} shards" if len(c.paths) > 1 else ""
        raise ModelError(
            c.path,
            f"{len(missing)} of the {len(shapes)} tensors of this architecture are missing"
            f"{shards}: {by_layer(missing)}",
        )


def _check_unused(c: Container, s: ModelSpec, shapes: Shapes) -> None:
    """Tensors that would change the result if they were read, or that other layers bring."""
    unused = [n for n in c.tensors if n not in shapes and not n.endswith(_DERIVED)]
    unused = [n for n in unused if not _predicts_more(n, s)]
    layers = [m for m in map(_LAYER.fullmatch, unused) if m]
    extra = [m[0] for m in layers if int(m[1]) >= s.n_layer]
    if extra:
        raise ModelError(
            c.path,
            f"is {s.n_layer}, but the file has tensors of further layers: {by_layer(extra)}",
            f"key '{s.arch}.block_count'",
        )
    known = ("blk.", "output", "token_embd", "token_types", "position_embd", "rope_", "per_layer_")
    harmful = [n for n in unused if n.startswith(known)]
    if harmful:
        raise ModelError(
            c.path,
            f"architecture {s.arch!r} with these tensors is not supported: {by_layer(harmful)}",
        )


def _predicts_more(name: str, s: ModelSpec) -> bool:
    """Whether a tensor is of a layer that predicts further tokens, which plans leave out."""
    m = _LAYER.fullmatch(name)
    return m is not None and s.n_layer <= int(m[1]) < s.n_layer + s.nextn


def by_layer(names: Iterable[str]) -> str:
    """Names in few words: "output_norm.weight; layers 0, 2-5: attn_k.weight, attn_q.weight"."""
    top: list[str] = []
    parts: dict[int, list[str]] = defaultdict(list)
    for name in names:
        m = _LAYER.fullmatch(name)
        if m:
            parts[int(m[1])].append(m[2])
        else:
            top.append(name)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for layer in sorted(parts):
        groups[tuple(sorted(parts[layer]))].append(layer)
    texts = [f"{_ranges(layers)}: {', '.join(group)}" for group, layers in groups.items()]
    shown = top[:MAX_LISTED] + texts[:MAX_LISTED]
    more = len(top) + len(texts) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _ranges(layers: list[int]) -> str:
    runs: list[list[int]] = []
    for n in layers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"layer {text}" if len(layers) == 1 else f"layers {text}"


def _others(names: list[str]) -> str:
    return f" (and {len(names) - 1} tensors more)" if len(names) > 1 else ""
