"""`validate --reference`, `--save-reference` and `--perplexity`: a model's logits as numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.errors import FileError
from .interrupt import Interrupt
from .loading import Model, describe, load, open_file
from .output import StatusLine, note
from .validate_report import Report, Section

if TYPE_CHECKING:
    from ..engine.runner import Runner, RunnerConfig

OPTIONS = ("reference", "save_reference", "perplexity")
N_CTX = 2048  # positions of a window of text, or as many as were trained
COLUMNS = ("prompt", "positions", "NMSE", "worst", "KL", "top-1", "top-5", "note")
RIGHT = "lrrrrrrl"


class TextCheck:
    """Runs the options that were given, on one loaded model."""

    def __init__(self, path: Path, config: RunnerConfig, options: dict[str, Any]) -> None:
        self.path, self.config, self.options = path, config, options
        name = options["perplexity"]
        self.text = None if name is None else read_text(name)
        self.status = StatusLine()
        target = options["save_reference"]
        if target is not None and Path(target).is_dir():
            raise FileError(f"--save-reference {target}: {Path(target)} is a folder")
        if target is not None and not Path(target).parent.is_dir():
            raise FileError(f"{target}: the folder {Path(target).parent} does not exist")

    def run(self, report: Report, stop: Interrupt) -> None:
        """All of them, in the order of OPTIONS; files are read before weights are."""
        from ..engine import harness_reference as engine

        with open_file(self.path) as model:
            given, ids = self.options["reference"], self.encode(model)
            prompts = engine.read(Path(given), model.spec.n_vocab) if given is not None else []
            longest = max([len(p.ids) for p in prompts] + [min(len(ids), N_CTX), 256])
            n_ctx = min(-(-longest // 256) * 256, model.spec.n_ctx_train)
            too_long = [len(p.ids) for p in prompts if len(p.ids) > n_ctx]
            if too_long:
                raise FileError(f"{given}: a prompt of {too_long[0]} ids exceeds the "
                                f"{n_ctx} positions of the model")  # fmt: skip
            with self.loaded(model, n_ctx, stop) as runner:
                if prompts:
                    self.compare(runner, prompts, report)
                target = self.options["save_reference"]
                if target is not None:
                    lengths = engine.save(Path(target), runner, report.seed, self.status.show)
                    self.status.show("")
                    note(f"{target}: logits of prompts of {', '.join(map(str, lengths))} ids")
                if ids:
                    self.perplexity(runner, ids, report)

    @contextmanager
    def loaded(self, model: Model, n_ctx: int, stop: Interrupt) -> Iterator[Runner]:
        """The model where --device says, as `run` would load it."""
        with load(model, replace(self.config, n_ctx=n_ctx), stop) as opened:
            if self.options["verbose"]:
                note("\n".join(describe(model, opened)))
            note(f"device: {opened.runner.describe}")
            yield opened.runner

    def encode(self, model: Model) -> list[int]:
        """Ids of the text, with BOS if the model asks for it; none without a text."""
        from ..engine.tokenizer import build_tokenizer

        if self.text is None:
            return []
        ids = build_tokenizer(model.container).encode(
            self.text, add_special=True, parse_special=False
        )
        if len(ids) < 3:  # one less is predicted, and deviations need two
            raise FileError("--perplexity: the text has fewer than three tokens")
        return ids

    def compare(self, runner: Runner, prompts: list[Any], report: Report) -> None:
        """A line for each prompt. There is no limit: only what is not finite fails."""
        from ..engine.harness_reference import agreement

        rows, records, failed = [], [], 0
        for i, p in enumerate(prompts):
            self.status.show(f"prompt {i + 1} of {len(prompts)}")
            found = agreement(runner.logits(p.ids), p.logits)
            bad = f"FAIL: {found.not_finite} logits not finite" if found.not_finite else ""
            failed += bool(bad)
            rows.append((str(i), str(found.positions), f"{found.nmse:.1e}", f"{found.worst:.1e}",
                         f"{found.divergence:.1e}", f"{100 * found.top1:.1f} %",
                         f"{100 * found.top5:.1f} %", bad))  # fmt: skip
            records.append({"prompt": i, **asdict(found)})
        self.status.show("")
        title = f"{self.path.name} against {Path(self.options['reference']).name}"
        report.add(Section("reference", title, COLUMNS, rows, RIGHT, records), failed)

    def perplexity(self, runner: Runner, ids: list[int], report: Report) -> None:
        """Mean negative log-likelihood with its standard error."""
        import numpy as np

        from ..engine.harness_reference import likelihoods

        found = likelihoods(runner, ids, self.status.show)
        self.status.show("")
        good = bool(np.isfinite(found).all())
        mean, error = float(found.mean()), float(found.std(ddof=1) / len(found) ** 0.5)
        what = f"{mean:.4f} ± {error:.4f}", f"{np.exp(mean):.4f}", "" if good else "FAIL"
        record = {"tokens": len(found), "nll": mean, "standard_error": error, "n_ctx": runner.n_ctx}
        columns = ("text", "tokens", "NLL", "perplexity", "note")
        rows = [(Path(self.options["perplexity"]).name, str(len(found)), *what)]
        report.add(Section("perplexity", f"Likelihood by {self.path.name}", columns, rows, "lrrrl",
                           [record]), int(not good))  # fmt: skip


def read_text(name: str) -> str:
    """A text file, or standard input for "-"."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as e:
        raise FileError(f"--perplexity {name}: {e.strerror}") from e
    return raw.decode("utf-8", "replace")
