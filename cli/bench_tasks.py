"""`bench tasks`: speeds over a set of real prompts by category, and two such runs compared."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import FileError, UsageError
from .bench_config import FOLDER
from .environment import drivers, environment
from .interrupt import EXIT_CODE, Interrupt
from .options import Command, choose_model, device_options, model_option, option, runner_config
from .output import StatusLine, note, warn
from .results import model_type
from .tasks_table import CATEGORIES, Sample, compare, read_result, summary, write_table

if TYPE_CHECKING:
    from ..engine.runner import Runner
    from ..engine.tokenizer import Tokenizer
    from .loading import Model

SHIPPED = FOLDER / "tasks.jsonl"
EXAMPLES = """\
The set is a file of JSON lines: {"category": "math", "prompt": "…"}. Every prompt goes through the
model's chat template and starts from an empty cache; tokens are drawn greedily up to -n or an
end token. Latency is from the prompt's first to the last token.

Examples:
  kompute-llm bench tasks -m model.gguf -n 128
  kompute-llm bench tasks -m model.gguf -o json > after.json
  kompute-llm bench tasks --compare before.json after.json
"""


@click.command("bench tasks", cls=Command, after_help=lambda: EXAMPLES)
@click.argument("files", nargs=-1, metavar="[MODEL | BEFORE.json AFTER.json]")
@model_option()
@option("--set", "path", section="Tasks", metavar="FILE.jsonl", help="Prompts. [a shipped set]")
@option("-n", "--n-predict", section="Tasks", type=click.IntRange(min=1), default=64,
        show_default=True, metavar="N", help="Most tokens to generate per prompt.")
@option("-o", "--output", section="Tasks", type=click.Choice(["md", "json"]), default="md",
        show_default=True, help="Markdown table, or JSON with all samples.")
@option("--compare", section="Tasks", is_flag=True, help="Compare two files of -o json.")
@option("--anyway", section="Tasks", is_flag=True,
        help="Compare although model, device, prompts or -n differ.")
@device_options()
def tasks(files: tuple[str, ...], **options: Any) -> int:
    """Measure a set of prompts by category."""
    if options["compare"]:
        if len(files) != 2:
            raise UsageError("--compare takes two files: BEFORE.json AFTER.json")
        before, after = (read_result(Path(f).expanduser()) for f in files)
        compare(before, after, options["anyway"], options["output"] == "json")
        return 0
    prompts = read_set(Path(options["path"]).expanduser() if options["path"] else SHIPPED)
    model_path = choose_model(options["model"], files)
    from .loading import open_file

    with Interrupt() as interrupt, open_file(model_path) as model:
        run = Run(model, options, interrupt)
        samples = run.all(prompts)
    if options["output"] == "json":
        result = run.facts | {"environment": environment(), "samples": samples}
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    elif samples:
        write_table(*summary(samples))
    if interrupt.pressed:
        note("interrupted")
        return EXIT_CODE
    return 0


def read_set(path: Path) -> list[tuple[str, str]]:
    """(category, prompt) of every line. Raises FileError naming the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise FileError(f"{path}: {getattr(e, 'strerror', None) or e}") from e
    found = []
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            category, prompt = row["category"], row["prompt"]
        except (ValueError, KeyError, TypeError) as e:
            raise FileError(f'{path}, line {i}: no {{"category": …, "prompt": …}} ({e})') from e
        if not isinstance(prompt, str) or not prompt or category not in CATEGORIES:
            raise FileError(f"{path}, line {i}: category {category!r} is none of "
                            f"{', '.join(CATEGORIES)}, or the prompt is no text")  # fmt: skip
        found.append((category, prompt))
    if not found:
        raise FileError(f"{path}: no prompts")
    return found


class Run:
    """One model over all prompts."""

    def __init__(self, model: Model, options: dict[str, Any], interrupt: Interrupt) -> None:
        from ..engine.tokenizer import build_tokenizer

        self.model, self.options, self.interrupt = model, options, interrupt
        self.tokenizer: Tokenizer = build_tokenizer(model.container)
        self.facts: dict[str, Any] = {
            "model": str(model.container.path), "model_type": model_type(model),
            "n_predict": options["n_predict"],
        }  # fmt: skip

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
        if longest > (trained := self.model.spec.n_ctx_train):
            warn(f"{longest} tokens of prompt and answer are beyond the {trained} positions of "
                 "training")  # fmt: skip
        config = replace(runner_config(self.options), n_ctx=-(-longest // 256) * 256)
        status, out = StatusLine(), []
        with load(self.model, config, self.interrupt) as opened:
            self.interrupt.raising = False
            device = opened.runner.describe
            self.facts |= {"device": device, "driver": drivers().get(device.rsplit(" (", 1)[0], ""),
                           "math": config.math, "n_batch": config.batch}  # fmt: skip
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
