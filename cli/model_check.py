"""`validate` of one model: its file, then its logits on the device against the CPU executor."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.errors import TokenizerError, UsageError
from .interrupt import Interrupt
from .loading import Model, describe, load, open_file
from .output import note, warn
from .validate_report import Report, Section

if TYPE_CHECKING:
    from ..engine.compare import Comparison
    from ..engine.runner import RunnerConfig

COLUMNS = ("logits", "positions", "NMSE", "limit", "top-1", "verdict", "note")
RIGHT = "lrrrrll"
N_CTX = 256  # positions; the comparison needs 48


class ModelCheck:
    """Compares the device that `config` names with the CPU executor."""

    def __init__(self, path: Path, config: RunnerConfig, seed: int, verbose: bool) -> None:
        if config.device == "cpu":
            raise UsageError("validate compares a Vulkan device with the CPU: --device cpu "
                             "leaves nothing to compare")
        self.path, self.seed, self.verbose = path, seed, verbose
        self.config = replace(config, n_ctx=N_CTX, device=config.device or "vulkan")
        # the oracle rounds what the cache stores, and nothing else
        self.oracle = replace(self.config, device="cpu", math="f32")

    def check_file(self) -> None:
        """Raise what is wrong with file, tokenizer or chat template, without any weights."""
        with open_file(self.path) as model:
            check_text(model)

    def run(self, interrupt: Interrupt, report: Report) -> None:
        """Compare logits; the table goes to the report."""
        with open_file(self.path) as model:
            found = self.compare(model, interrupt)
            good = all(c.ok for c in found)
            rows = [cells(c) for c in found]
            if not good:
                rows.append(self.first_bad_layer(model, interrupt))
        records = [asdict(c) | {"ok": c.ok} for c in found]
        title = f"Logits of {self.path.name}"
        failed = sum(not c.ok for c in found)
        report.add(Section("model", title, COLUMNS, rows, RIGHT, records), failed)

    def compare(self, model: Model, interrupt: Interrupt) -> list[Comparison]:
        """Load the model on both sides and compare logits."""
        from ..engine.compare import compare_runners, limit

        with load(model, self.config, interrupt) as opened:
            if self.verbose:
                note("\n".join(describe(model, opened)))
            kind = products(opened.runner.describe)
            allowed = limit(kind, (self.config.cache_k, self.config.cache_v))
            with load(model, self.oracle, interrupt) as reference:
                pair = opened.runner, reference.runner
                return list(compare_runners(*pair, seed=self.seed, allowed=allowed))

    def first_bad_layer(self, model: Model, interrupt: Interrupt) -> tuple[str, ...]:
        """Bisect the number of layers: the model cut behind a layer is a smaller model."""
        good, bad = 0, model.spec.n_layer  # cut to `good` layers it agrees, to `bad` it does not
        while bad - good > 1:
            middle = (good + bad) // 2
            part = Model(model.container, replace(model.spec, n_layer=middle))
            if all(c.ok for c in self.compare(part, interrupt)):
                good = middle
            else:
                bad = middle
        others = "" if bad > 1 else ", or token_embd, output_norm, output"
        where = f"blk.{bad - 1}{others}"
        return (f"first bad layer: {where}", "", "", "", "", "", "")


def products(describe: str) -> str:
    """The coarsest products that a runner says it takes: "int8", "f16" or "f32"."""
    taken = re.findall(r"(\w+) (?:products|in batches)", describe)
    return next((kind for kind in ("int8", "f16") if kind in taken), "f32")


def check_text(model: Model) -> None:
    """The tokenizer must be sound; a template that cannot be rendered is only said."""
    from ..engine.chat import chat_template
    from ..engine.tokenizer import build_tokenizer

    tokenizer = build_tokenizer(model.container)
    for text in (*tokenizer.notes, *model.spec.notes):
        note(f"note: {text}")
    template = chat_template(model.container, tokenizer)
    if template is not None:
        try:
            template.render([{"role": "user", "content": "Hello"}])
        except TokenizerError as e:
            warn(f"the chat template cannot be rendered: {e}")


def cells(c: Comparison) -> tuple[str, ...]:
    """One comparison as table cells."""
    verdict = "ok" if c.ok else "FAIL"
    agree = f"{c.agree}/{c.positions}"
    return (c.name, str(c.positions), f"{c.nmse:.1e}", f"{c.limit:.0e}", agree, verdict, c.note)
