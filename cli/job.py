"""What the options of `run` say, in one record that both its reader and its session know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.runner import RunnerConfig
    from ..engine.sampler import Sampling


@dataclass(frozen=True)
class Job:
    """One `run`. `config.n_ctx` is 0 until the prompt's length is known."""

    model: Path
    prompt: str
    system: str | None
    chat: bool | None  # None: if the model has a template
    n_predict: int  # -1: until an end token or a full context
    ctx: int | None  # None: choose; 0: as trained
    ignore_eos: bool
    sampling: Sampling
    fresh_seed: bool  # chosen by us, so it must be told
    config: RunnerConfig
    profile: bool
    verbose: bool
