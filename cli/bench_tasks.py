"""`bench tasks`: speeds over a set of real prompts by category, and two such runs compared."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import UsageError
from .bench_config import FOLDER
from .environment import environment
from .interrupt import EXIT_CODE, Interrupt
from .options import Command, choose_model, device_options, model_option, option, runner_config
from .output import StatusLine, note
from .tables import markdown_row, markdown_rule

if TYPE_CHECKING:
    from ..engine.runner import Runner
    from ..engine.tokenizer import Tokenizer
    from .loading import Model

SHIPPED = FOLDER / "tasks.jsonl"
CATEGORIES = (
    "coding", "humanities", "math", "qa", "rag", "reasoning", "stem", "writing", "multilingual",
    "summarization", "roleplay",
)  # fmt: skip
EXAMPLES = """\
The set is a file of JSON lines: {"category": "math", "prompt": "…"}. Every prompt goes through the
model's chat template and starts from an empty cache; tokens are drawn greedily up to -n or an
end token. Latency is from the prompt's first to the last token.

Examples:
  kompute-llm bench tasks -m model.gguf -n 128
  kompute-llm bench tasks -m model.gguf -o json > after.json
  kompute-llm bench tasks --compare before.json after.json
"""
Sample = dict[str, Any]


@click.command("bench tasks", cls=Command, after_help=lambda: EXAMPLES)
@click.argument("files", nargs=-1, metavar="[MODEL | BEFORE.json AFTER.json]")
@model_option()
@option("--set", "path", section="Tasks", metavar="FILE.jsonl", help="Prompts. [a shipped set]")
@option("-n", "--n-predict", section="Tasks", type=click.IntRange(min=1), default=64,
        show_default=True, metavar="N", help="Most tokens to generate per prompt.")
@option("-o", "--output", section="Tasks", type=click.Choice(["md", "json"]), default="md",
        show_default=True, help="Markdown table, or JSON with all samples.")
@option("--compare", section="Tasks", is_flag=True, help="Compare two files of -o json.")
@device_options()
def tasks(files: tuple[str, ...], **options: Any) -> int:
    """Measure a set of prompts by category."""
    if options["compare"]:
        if len(files) != 2:
            raise UsageError("--compare takes two files: BEFORE.json AFTER.json")
        before, after = (read_result(Path(f).expanduser()) for f in files)
        write_table(*compared(before, after))
        return 0
    prompts = read_set(Path(options["path"]).expanduser() if options["path"] else SHIPPED)
    model_path = choose_model(options["model"], files)
    from .loading import open_file

    with Interrupt() as interrupt, open_file(model_path) as model:
        run = Run(model, options, interrupt)
        samples = run.all(prompts)
    if options["output"] == "json":
        result = {"model": str(model_path), "device": run.device, "n_predict": options["n_predict"],
                  "environment": environment(), "samples": samples}  # fmt: skip
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    elif samples:
        write_table(*summary(samples))
    if interrupt.pressed:
        note("interrupted")
        return EXIT_CODE
    return 0


def read_set(path: Path) -> list[tuple[str, str]]:
    """(category, prompt) of every line. Raises UsageError naming the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: {getattr(e, 'strerror', None) or e}") from e
    found = []
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            category, prompt = row["category"], row["prompt"]
        except (ValueError, KeyError, TypeError) as e:
            raise UsageError(f'{path}, line {i}: no {{"category": …, "prompt": …}} ({e})') from e
        if not isinstance(prompt, str) or not prompt or category not in CATEGORIES:
            raise UsageError(f"{path}, line {i}: category {category!r} is none of "
                             f"{', '.join(CATEGORIES)}, or the prompt is no text")  # fmt: skip
        found.append((category, prompt))
    if not found:
        raise UsageError(f"{path}: no prompts")
    return found


class Run:
    """One model over all prompts."""

    def __init__(self, model: Model, options: dict[str, Any], interrupt: Interrupt) -> None:
        from ..engine.tokenizer import build_tokenizer

        self.model, self.options, self.interrupt = model, options, interrupt
        self.tokenizer: Tokenizer = build_tokenizer(model.container)
        self.device = ""

    def ids(self, prompt: str) -> list[int]:
        """A prompt through the chat template, where there is one."""
        from ..engine.chat import chat_template, encode_prompt, without_bos

        template = chat_template(self.model.container, self.tokenizer)
        if template is None:
            return encode_prompt(self.tokenizer, prompt)
        message = {"role": "user", "content": without_bos(self.tokenizer, prompt)}
        return encode_prompt(self.tokenizer, template.render([message]))

    def all(self, prompts: Sequence[tuple[str, str]]) -> list[Sample]:
        """A sample of every prompt; those that were finished at Ctrl-C."""
        from .loading import load

        encoded = [(category, self.ids(prompt)) for category, prompt in prompts]
        longest = max(len(ids) for _, ids in encoded) + self.options["n_predict"]
        config = replace(runner_config(self.options), n_ctx=-(-longest // 256) * 256)
        status, out = StatusLine(), []
        with load(self.model, config, self.interrupt) as opened:
            self.interrupt.raising = False
            self.device = opened.runner.describe
            status.show("warm-up")
            self.one(opened.runner, *max(encoded, key=lambda e: len(e[1])))
            for i, (category, ids) in enumerate(encoded, 1):
                status.show(f"{i}/{len(encoded)}: {category}")
                sample = self.one(opened.runner, category, ids)
                if self.interrupt.pressed:
                    break
                out.append(sample)
            status.show("")
        return out

    def one(self, runner: Runner, category: str, ids: list[int]) -> Sample:
        """Generate for one prompt."""
        from ..engine.generate import generate
        from ..engine.sampler import Sampling
        from ..engine.stats import Stats

        stats, start = Stats(), time.perf_counter()
        for _ in generate(
            runner, ids, Sampling(temp=0.0, seed=0), self.tokenizer.end_ids,
            self.options["n_predict"], stats=stats, stopped=lambda: self.interrupt.pressed,
        ):  # fmt: skip
            pass
        return {
            "category": category, "prompt_tokens": stats.prompt, "generated": stats.generated,
            "prompt_ts": stats.prompt_rate, "gen_ts": stats.decode_rate,
            "latency_s": time.perf_counter() - start, "accept_rate": None,
        }  # fmt: skip


def groups(samples: Sequence[Sample]) -> Iterator[tuple[str, list[Sample]]]:
    """Samples of each category in the usual order, then all of them."""
    for category in CATEGORIES:
        found = [s for s in samples if s["category"] == category]
        if found:
            yield category, found
    yield "overall", list(samples)


def mean(samples: Sequence[Sample], what: str) -> float | None:
    """Of the samples that have the figure; None if none has."""
    values = [s[what] for s in samples if s[what] is not None]
    return sum(values) / len(values) if values else None


def figure(value: float | None, digits: int = 2) -> str:
    """A number, or n/a."""
    return "n/a" if value is None else f"{value:.{digits}f}"


def summary(samples: Sequence[Sample]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of one run."""
    header = ("category", "samples", "prompt t/s", "generation t/s", "latency s", "accept rate")
    rows: list[tuple[str, ...]] = [
        (name, str(len(found)), figure(mean(found, "prompt_ts")), figure(mean(found, "gen_ts")),
         figure(mean(found, "latency_s"), 3), figure(mean(found, "accept_rate")))
        for name, found in groups(samples)
    ]  # fmt: skip
    return header, rows


def compared(
    before: Sequence[Sample], after: Sequence[Sample]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of two runs; speed-ups are ratios of the means."""
    header = ("category", "prompt before", "after", "speed-up", "generation before", "after",
              "speed-up", "latency speed-up")  # fmt: skip
    others = dict(groups(after))
    rows = []
    for name, found in groups(before):
        cells = [name]
        pairs = {w: (mean(found, w), mean(others.get(name, []), w))
                 for w in ("prompt_ts", "gen_ts", "latency_s")}  # fmt: skip
        for what in ("prompt_ts", "gen_ts"):
            a, b = pairs[what]
            cells += [figure(a), figure(b), f"{b / a:.2f} x" if a and b else "n/a"]
        a, b = pairs["latency_s"]
        cells.append(f"{a / b:.2f} x" if a and b else "n/a")
        rows.append(tuple(cells))
    return header, rows


def read_result(path: Path) -> list[Sample]:
    """Samples of a file of -o json. Raises UsageError."""
    try:
        samples: list[Sample] = json.loads(path.read_text(encoding="utf-8"))["samples"]
        if not samples or any(s["category"] not in CATEGORIES or s["latency_s"] <= 0
                              or {"prompt_ts", "gen_ts"} - set(s) for s in samples):  # fmt: skip
            raise ValueError("no samples")
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise UsageError(f"{path}: no file of 'bench tasks -o json' ({e})") from e
    return samples


def write_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Markdown on stdout."""
    widths = [max(len(r[i]) for r in (header, *rows)) for i in range(len(header))]
    align = "l" + "r" * (len(header) - 1)
    lines = [markdown_row(header, widths, align), markdown_rule(widths, align)]
    lines += [markdown_row(r, widths, align) for r in rows]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
