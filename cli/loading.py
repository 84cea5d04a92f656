"""From a path to a runner, with a progress bar; what `run`, `bench` and `validate` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine import choice
from ..engine.errors import UsageError
from ..engine.runner import DEFAULT_CTX
from .interrupt import Interrupt
from .output import load_bar, note
from .tables import count, size

if TYPE_CHECKING:
    from ..engine.container import Container
    from ..engine.runner import Opened, RunnerConfig
    from ..engine.spec import ModelSpec

ROOM = 1024  # generated tokens that the default context has room for after a long prompt


@dataclass(frozen=True)
class Model:
    """An open model file, before any weight is loaded."""

    container: Container
    spec: ModelSpec


@contextmanager
def open_file(path: Path) -> Iterator[Model]:
    """Open and check a model file; closes it at the end. Raises ModelError."""
    from ..engine.container import open_model
    from ..engine.spec import model_spec
    from ..engine.synthetic import PREFIX

    if str(path).startswith(PREFIX) and not path.exists():
        raise UsageError(f"{path}: synthetic models are for 'bench', which writes them as files "
                         "as well (--export)")  # fmt: skip
    container = open_model(path)
    try:
        yield Model(container, model_spec(container))
    finally:
        container.close()


@contextmanager
def load(model: Model, config: RunnerConfig, interrupt: Interrupt) -> Iterator[Opened]:
    """Load the weights under a progress bar and say where the model runs; closes the runner."""
    interrupt.raising = True
    with load_bar(f"loading {model.container.path.name}") as bar:

        def progress(done: int, total: int) -> None:
            interrupt.check()
            bar(done, total)

        def tell(text: str) -> None:
            note(f"note: {text}")

        opened = choice.open_runner(model.container, model.spec, config, progress, tell)
    try:
        for text in opened.notes:
            tell(text)
        yield opened
    finally:
        opened.runner.close()


def context_size(spec: ModelSpec, asked: int | None, prompt: int, n_predict: int) -> int:
    """Positions of the KV cache: `asked`, the trained context (0), or a default that fits.

    The default holds the prompt and `n_predict` tokens, at least 4096 positions, but never more
    than the model was trained for. Multiples of 256 keep the cache's rows aligned.
    """
    if asked:
        return asked
    trained = spec.n_ctx_train
    if asked == 0:
        return trained
    wanted = max(DEFAULT_CTX, prompt + (n_predict if n_predict >= 0 else ROOM))
    return min(trained, -(-wanted // 256) * 256)


def describe(model: Model, opened: Opened) -> list[str]:
    """The load summary of --verbose, one fact a line."""
    spec, runner = model.spec, opened.runner
    files = len(model.container.paths)
    parts = f" ({files} files)" if files > 1 else ""
    used = ", ".join(f"{name} {size(n)}" for name, n in runner.memory().items())
    return [
        f"model: {model.container.path}{parts}",
        f"  {spec.name or 'unnamed'}: {spec.arch}, {spec.n_layer} layers, "
        f"{count(spec.n_params)} parameters, {size(spec.weight_bytes)}",
        *(f"  {text}" for text in spec.notes),
        *dict.fromkeys(f"  {text}" for r in spec.ropes if (text := r.chosen(runner.n_ctx))),
        f"  context {runner.n_ctx} of {spec.n_ctx_train} trained positions",
        f"device: {runner.describe}",
        f"memory: {used}",
    ]
