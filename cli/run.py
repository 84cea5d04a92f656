"""`run`: one prompt in, generated text out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ..engine.errors import UsageError
from .interrupt import Interrupt
from .job import Job
from .loading import open_file
from .options import (
    Command,
    choose_model,
    combine,
    device_options,
    model_option,
    option,
    runner_config,
    sampling_options,
)
from .prompt import decode, read_prompt

if TYPE_CHECKING:
    from ..engine.sampler import Sampling

EXAMPLES = """\
Examples:
  kompute-llm run -p "Why is the sky blue?"
  kompute-llm run -m model.gguf -f prompt.txt -n 200 --temp 0
  cat notes.txt | kompute-llm run --system "Summarize in one line" -
  kompute-llm run -m base.gguf --no-chat -p "Once upon a time" --seed 7
"""


def help_tail() -> str:
    """Special values of the sampling options, then examples."""
    from ..engine.sampler import SPECIAL_VALUES

    return f"{SPECIAL_VALUES}\n\n{EXAMPLES}"


def prompt_options(f: Any) -> Any:
    """What goes in and how much comes out."""
    text = "Prompt"
    return combine(
        option("-p", "--prompt", section=text, metavar="TEXT", help="The prompt; '-' is stdin."),
        option("-f", "--file", section=text, metavar="FILE", help="Read the prompt from a file."),
        option("--system", section=text, metavar="TEXT", help="System message of the chat."),
        option("--chat/--no-chat", section=text, default=None,
               help="Use the model's chat template, or complete the raw text. "
               "[chat if the model has a template]"),
        option("-n", "--n-predict", section=text, type=click.IntRange(min=-1), default=-1,
               show_default=True, metavar="N",
               help="Tokens to generate; -1: until an end token or a full context."),
        option("-c", "--ctx", section=text, type=click.IntRange(min=0), metavar="N",
               help="Positions of the context; 0: as trained. "
               "[4096 or what the prompt needs, at most as trained]"),
        option("--ignore-eos", section=text, is_flag=True, help="Go on after end tokens."),
    )(f)


@click.command(cls=Command, after_help=help_tail)
@click.argument("args", nargs=-1, metavar="[MODEL] [-]")
@model_option()
@prompt_options
@sampling_options()
@device_options()
@option("--profile", section="Report", is_flag=True, help="Print the time of each phase.")
@option("-v", "--verbose", section="Report", is_flag=True,
        help="Describe model, device and prompt; tracebacks of errors.")
def run(args: tuple[str, ...], **options: Any) -> int:
    """Generate text from a prompt.

    The text goes to stdout, everything else to stderr. Without -p and -f the prompt is read from
    standard input. Ctrl-C ends generation and keeps the text; a second one leaves at once.
    """
    with Interrupt() as interrupt:
        from .session import Session

        job = read_job(args, options)
        with open_file(job.model) as model:
            return Session(job, model, interrupt).run()


def read_job(args: tuple[str, ...], options: dict[str, Any]) -> Job:
    """Check the options and read the prompt. Raises UsageError before any model is opened."""
    sampling, fresh = read_sampling(options)
    if options["system"] is not None and options["chat"] is False:
        raise UsageError("--system needs the chat template that --no-chat switches off")
    model = choose_model(options["model"], [a for a in args if a != "-"])
    system = options["system"]
    return Job(
        model=model,
        prompt=read_prompt(options["prompt"], options["file"], "-" in args),
        system=None if system is None else decode(os.fsencode(system), "--system"),
        chat=options["chat"],
        n_predict=options["n_predict"],
        ctx=options["ctx"],
        ignore_eos=options["ignore_eos"],
        sampling=sampling,
        fresh_seed=fresh,
        config=runner_config(options),
        profile=options["profile"],
        verbose=options["verbose"],
    )


def read_sampling(options: dict[str, Any]) -> tuple[Sampling, bool]:
    """Sampling options, checked, and whether the seed is a fresh one."""
    from ..engine.sampler import Sampling

    names = ("temp", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n",
             "presence_penalty", "frequency_penalty")
    sampling = Sampling(**{name: options[name] for name in names}, seed=options["seed"])
    sampling.validate()
    return sampling.with_seed(), sampling.seed == -1
