"""One `run`: encode the prompt, load the model, stream the text, report."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ..engine.chat import ChatTemplate, chat_template, encode_prompt, without_bos
from ..engine.errors import KomputeLLMError, TokenizerError, UsageError
from ..engine.generate import check_fits, generate
from ..engine.stats import Finish, Stats
from ..engine.stream import Utf8Stream
from ..engine.tokenizer import build_tokenizer
from .interrupt import EXIT_CODE, Interrupt
from .job import Job
from .loading import Model, context_size, describe, load
from .output import StatusLine, TextOut, note, warn
from .profile_table import Phases, phase_table
from .tables import rates

if TYPE_CHECKING:
    from ..engine.runner import Opened


class Session:
    """State of one generation; `run` returns the exit code."""

    def __init__(self, job: Job, model: Model, interrupt: Interrupt) -> None:
        self.job, self.model, self.interrupt = job, model, interrupt
        self.tokenizer = build_tokenizer(model.container)
        self.stats = Stats()
        self.seconds = 0.0  # of generation, wall clock
        self.status = StatusLine()

    def run(self) -> int:
        """Everything in order. Errors come as exceptions, before the weights where possible."""
        for text in self.tokenizer.notes:
            warn(text)
        ids = self.encode()
        spec, job = self.model.spec, self.job
        n_ctx = context_size(spec, job.ctx, len(ids), job.n_predict)
        check_fits(len(ids), n_ctx)
        if n_ctx > spec.n_ctx_train:
            warn(f"a context of {n_ctx} exceeds the {spec.n_ctx_train} positions of training")
        with load(self.model, replace(job.config, n_ctx=n_ctx), self.interrupt) as opened:
            if job.verbose:
                self.describe(opened, ids)
            if job.fresh_seed and not job.sampling.greedy:
                note(f"seed: {job.sampling.seed}")
            self.stream(opened, ids)
            self.report(opened)
        return EXIT_CODE if self.stats.finish is Finish.INTERRUPTED else 0

    def encode(self) -> list[int]:
        """The prompt's ids, through the chat template unless there is none or it is not wanted."""
        job, tok = self.job, self.tokenizer
        template = None if job.chat is False else self.template()
        if template is None:
            ids = encode_prompt(tok, job.prompt)
        else:
            messages = [{"role": "user", "content": without_bos(tok, job.prompt)}]
            if job.system is not None:
                messages.insert(0, {"role": "system", "content": job.system})
            try:
                text = template.render(messages)
            except TokenizerError as e:
                raise TokenizerError(f"{e} (--no-chat completes the raw text instead)") from e
            ids = encode_prompt(tok, text)
        if not ids and tok.bos is None:
            raise UsageError("the prompt is empty and the model has no token to begin with")
        return ids or [int(tok.bos or 0)]

    def template(self) -> ChatTemplate | None:
        """The model's chat template; UsageError if it has none although one is asked for."""
        found = chat_template(self.model.container, self.tokenizer)
        if found is None and self.job.chat:
            raise UsageError("--chat: this model has no chat template (--no-chat is raw text)")
        if found is None and self.job.system is not None:
            raise UsageError("--system: this model has no chat template to put it into")
        return found

    def describe(self, opened: Opened, ids: list[int]) -> None:
        """--verbose: model, device, memory and the ids that the model will see."""
        for line in describe(self.model, opened):
            note(line)
        note(f"prompt: {len(ids)} tokens: {' '.join(map(str, ids))}")

    def stream(self, opened: Opened, ids: list[int]) -> None:
        """Write the text as it comes. Ctrl-C is a flag from here on, seen after every chunk."""
        self.interrupt.raising = False
        self.interrupt.on_forced = lambda: note(rates(self.stats))
        self.interrupt.check()
        out, utf8, runner = TextOut(), Utf8Stream(), opened.runner
        end_ids: Collection[int] = () if self.job.ignore_eos else self.tokenizer.end_ids
        runner.profile(self.job.profile)
        began = time.perf_counter()
        tokens = generate(
            runner, ids, self.job.sampling, end_ids, self.job.n_predict,
            stats=self.stats, stopped=self.stopped,
        )  # fmt: skip
        try:
            for token in tokens:
                self.status.show("")
                out.write(utf8.push(self.tokenizer.token_bytes(token)))
        except KomputeLLMError:
            self._finish(out, utf8)
            if self.stats.generated:
                note(f"the text is incomplete: it broke off after {self.stats.generated} tokens")
            raise
        self._finish(out, utf8)
        self.seconds = time.perf_counter() - began

    def stopped(self) -> bool:
        """Asked between pieces of work: shows how far the prompt is, until there is text."""
        if not self.stats.generated:
            self.status.show(f"prompt: {self.stats.processed} of {self.stats.prompt} tokens")
        return self.interrupt.pressed

    def _finish(self, out: TextOut, utf8: Utf8Stream) -> None:
        self.status.show("")
        out.write(utf8.flush())
        out.end()

    def report(self, opened: Opened) -> None:
        """Why it ended, where time went, and the rates as the last line."""
        stats, job = self.stats, self.job
        if stats.bad_logits:
            times = "once" if stats.bad_logits == 1 else f"{stats.bad_logits} times"
            warn(f"logits were NaN or infinite {times} and were left out; "
                 "'kompute-llm validate -m MODEL' looks for the cause")
        if stats.finish is Finish.CONTEXT:
            note(f"the context of {opened.runner.n_ctx} tokens is full (-c sets it)")
        if job.verbose:
            note(f"stopped: {self.stop_reason()}")
            note(f"{stats.prompt} prompt tokens ({stats.cached} cached, {stats.processed} "
                 f"processed) in {stats.prompt_seconds:.3f} s; {stats.generated} generated, "
                 f"{stats.decode_seconds:.3f} s after the first")
        if job.profile:
            phase_table(Phases.of(opened.runner, self.seconds))
        note(rates(stats))
        self.interrupt.on_forced = lambda: None

    def stop_reason(self) -> str:
        """The reason, with id and text of the end token."""
        end = self.stats.end_id
        if end is None:
            return self.stats.finish.value
        return f"end token {end} {self.tokenizer.piece(end)!r}"
