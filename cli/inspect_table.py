"""The tables of `inspect`: one fact a line, formats by group, memory by kind of device."""

from __future__ import annotations

import sys
from typing import Any

from .output import is_terminal, visible
from .tables import count, size, table

Facts = dict[str, Any]
Rows = list[tuple[str, str]]
LISTED = 10  # suppressed tokens that are shown


def show(facts: Facts) -> None:
    """Everything, in three tables."""
    rows = [*_model(facts), *_sizes(facts["sizes"]), *_vocabulary(facts)]
    rows += [("note", text) for text in facts["notes"]]
    clean = [(name, visible(" ".join(text.split()))) for name, text in rows if text]
    table(("file", visible(facts["model"]["path"])), clean)
    if facts["formats"]:
        _gap()
        _formats(facts["formats"], facts["model"]["tensor_bytes"])
    if facts["demands"]:
        _gap()
        _demands(facts)


def _gap() -> None:
    if not is_terminal(sys.stdout):  # there, tables have empty lines around them
        sys.stdout.write("\n")


def _model(facts: Facts) -> Rows:
    m = facts["model"]
    runs = "yes" if facts["problem"] is None else f"no: {facts['problem']}"
    if facts["problem"] is None and facts["tokenizer"]["problem"]:
        runs = "only 'bench': without its tokenizer it makes no text (see below)"
    files = f" in {m['files']} files" if m["files"] > 1 else ""
    bits = f", {m['bits_per_weight']:.2f} bits each" if m["bits_per_weight"] else ""
    mix = f", {m['mix']}" if m["mix"] else ""
    parameters = f"{count(m['parameters'])} in {m['tensors']} tensors{bits}{mix}"
    return [
        ("name", str(m["name"] or "")),
        ("license", str(m["license"] or "")),
        ("architecture", m["architecture"] or "unknown"),
        ("runs", runs),
        ("size", f"{size(m['file_bytes'])}{files}"),
        ("parameters", parameters if m["tensors"] else ""),
    ]


def _sizes(s: Facts) -> Rows:
    """Layers, attention, rotation; a part whose keys are absent is left out."""

    def part(form: str, *names: str) -> str:
        return form.format(*(_plain(s[n]) for n in names)) if all(n in s for n in names) else ""

    heads = part("{} heads", "heads") + part(" on {} key/value heads", "kv_heads")
    heads += part(", {} values each", "head_size") + part(", latent of {}", "latent")
    window = part("{} positions, where layers have one", "window") if s.get("window") else ""
    experts = part("{} of {} per token", "experts_used", "experts") if s.get("experts") else ""
    experts += part(", {} shared", "experts_shared") if experts else ""
    rope = part("base {}", "rope_base") + part(", {} values of a head", "rope_dims")
    rope += part(", {}", "rope_scaling") + part(" by {}", "rope_factor")
    rope += part(" from {} positions", "rope_trained") + part(", {}", "rope_tensors")
    layers = part("{}", "layers") + part(", {} wide", "width") + part(", ffn {}", "ffn_width")
    return [
        ("layers", layers), ("attention", heads), ("window", window), ("experts", experts),
        ("rope", rope.removeprefix(", ")), ("context", part("{} positions of training", "context")),
    ]  # fmt: skip


def _plain(value: Any) -> str:
    """Numbers without a needless ".0"."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _vocabulary(facts: Facts) -> Rows:
    t, template = facts["tokenizer"], facts["template"]
    kind = "/".join(str(x) for x in (t["kind"], t["pre"]) if x)
    parts = [kind, f"{t['tokens']} tokens" if t["tokens"] else "",
             f"{t['merges']} merges" if t["merges"] else ""]  # fmt: skip
    special = [f"{name} {i} {text!r}" for name, (i, text) in t["special"].items()]
    if t.get("adds_bos"):
        special.append("bos is added")
    ends = [f"{i} {text!r}" for i, text in t["end_tokens"]]
    never = [f"{i} {text!r}" for i, text in t["suppressed"][:LISTED]]
    more = len(t["suppressed"]) - LISTED
    chat = "none"
    if template is not None:
        chat = f"{template['characters']} characters"
        chat += f", cannot be rendered: {template['problem']}" if template["problem"] else ""
    rows = [
        ("tokenizer", ", ".join(filter(None, parts)) or "none"),
        ("", t["problem"] or ""),
        ("special tokens", ", ".join(special)),
        ("end tokens", ", ".join(ends)),
        ("never drawn", ", ".join(never) + (f" and {more} more" if more > 0 else "")),
        ("chat template", chat),
    ]
    return rows + [("note", text) for text in t["notes"]]


def _formats(formats: list[Facts], total: int) -> None:
    cells = [
        (f["group"], f["format"], str(f["tensors"]), count(f["values"]), size(f["bytes"]),
         f"{100 * f['bytes'] / total:.1f}" if total else "0.0")
        for f in formats
    ]  # fmt: skip
    table(("group", "format", "tensors", "parameters", "size", "%"), cells, right="llrrrr")


def _demands(facts: Facts) -> None:
    """Memory by kind of device, under the context that it is for."""
    sys.stdout.write(f"Memory for {facts['ctx']} positions, {facts['cache_k']} keys and "
                     f"{facts['cache_v']} values (-c, -ctk, -ctv set them):\n")  # fmt: skip
    cells = []
    for d in facts["demands"]:
        names = ("weights", "cache", "scratch", "device", "host")
        parts = ["" if d["problem"] else size(d[n]) if d[n] else "-" for n in names]
        cells.append((d["kind"], visible(d["problem"] or d["path"]), *parts))
    table(("where", "products", "weights", "KV cache", "buffers", "device", "host"), cells,
          right="llrrrrr")  # fmt: skip
    if facts["saved"]:
        sys.stdout.write(f"{size(facts['saved'])} less than a row per position: layers with "
                         "a window keep the last positions only.\n")  # fmt: skip
    mapped = max(d["mapped"] for d in facts["demands"])
    if mapped:
        sys.stdout.write(f"{size(mapped)} of the CPU's are the mapped file.\n")
