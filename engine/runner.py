"""The executor seam: what generation, benchmarks and validation ask of an executor.

Two executors run the same plan: engine/vulkan.py (recorded sequences) and engine/cpu.py (kernel
references); engine/choice.py chooses one. The seam knows token ids and logits only; it neither
prints nor reads options, so everything worth telling the user comes back as `Opened.notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from .step import StopReason

if TYPE_CHECKING:
    from pathlib import Path

    from .sampler import Sampling
    from .spec import ModelSpec
    from .work import Work

Progress = Callable[[int, int], None]  # (bytes loaded, bytes in all); may raise to stop loading
DEFAULT_CTX = 4096  # positions; a trained context of 128k would take gigabytes of KV cache
Notify = Callable[[str], None]  # told at once, while loading, what the user may wonder about


def unheard(text: str) -> None:
    """The `Notify` of nobody."""


class Runner(Protocol):
    """One loaded model on one device. Calls come from one thread, one generation at a time."""

    spec: ModelSpec
    n_ctx: int  # positions in the KV cache
    describe: str  # "NVIDIA H200 (vulkan, f32 products, f16 KV)"
    batch: int  # most ids for the next `prefill` call; adapts
    chunk: int  # decode steps per submit that keep streaming smooth (<= 50 ms); adapts

    def begin(self, sampling: Sampling, end_ids: Collection[int], limit: int) -> None:
        """Start a generation: position 0, all state cleared, `sampling.seed` set by the caller.

        It stops (LIMIT) when a token has been drawn and the cache holds `limit` entries or more,
        so a prompt of P ids and n drawn tokens need limit = P + n - 1.
        """

    def prefill(self, ids: Sequence[int], *, sample: bool) -> None:
        """Append up to `batch` ids at the current position; `sample` also draws the next token."""

    def decode(self, steps: int) -> None:
        """Feed the token drawn last and draw the next, up to `steps` times or until it stops."""

    def poll(self) -> tuple[list[int], StopReason, int]:
        """Tokens drawn since the last poll, why it stopped, non-finite logits since `begin`.

        The end token itself is the last id when the reason is END_TOKEN.
        """

    def logits(self, ids: Sequence[int], pos: int = 0) -> npt.NDArray[np.float32]:
        """Logits (len(ids), n_vocab) after each of `ids`, fed at position `pos`.

        `pos` may lie behind positions that were fed before, which are then written anew. Raises
        UsageError where a layer's window wants positions that its ring no longer has; 0 is always
        possible.
        """

    def profile(self, on: bool) -> None:
        """Start (clearing what was measured) or stop measuring time per phase."""

    def phases(self) -> dict[str, float]:
        """Seconds per `Phase.value`, and "host" for the rest, since `profile(True)`."""

    def work(self) -> dict[str, Work]:
        """What had to be done per `Phase.value` since `profile(True)`."""

    @property
    def roof_file(self) -> Path:
        """The file with the speed limits of this device, measured or not (engine/roof.py)."""

    def replay(self, on: bool) -> None:
        """Whether recorded work is replayed (so it is from the start) or recorded every time.

        Raises UsageError where nothing is recorded.
        """

    def memory(self) -> dict[str, int]:
        """Bytes on the device: "weights", "kv", "scratch"."""

    def close(self) -> None:
        """Free the device's memory; waits for running work."""


@dataclass(frozen=True)
class RunnerConfig:
    """What the user may choose about an executor; each field has one command-line option."""

    n_ctx: int
    device: str | None = None  # None: choose; "cpu"; "vulkan"; an index or part of a name
    cache_k: str = "f16"  # "f16", "f32", "q8_0" or "q4_0"
    cache_v: str = "f16"
    math: str = "auto"  # factors of products: "auto", "f32", "f16" or "int8"
    batch: int = 512  # most prompt tokens per submit
    threads: int | None = None  # CPU executor; None: one per physical core
    expert_top_p: float = 1.0  # part of the chosen experts' weights that is enough; 1: all of them


@dataclass(frozen=True)
class Opened:
    """A runner, the name of its backend and what the user should know about the choice."""

    runner: Runner
    backend: str  # "Vulkan" or "CPU"
    notes: tuple[str, ...] = ()
