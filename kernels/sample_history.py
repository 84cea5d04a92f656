"""sample_history: the penalty window for a batch of prompt tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine import sampler
from ..engine import step as words
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words
from .sample_scan import settings_case


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One invocation per token of the batch."""
    threads = limits.workgroup(128)
    return Launch("", (threads,), (-(-rows // threads), 1, 1))


def reference(
    step: Array, tokens: Array, settings: Array, counts: Array, history: Array,
    *, n_vocab: int, n_ctx: int,
) -> None:  # fmt: skip
    """counts (n_vocab,): occurrences in the last WINDOW tokens; history (n_ctx,): id + 1."""
    n, pos, window = int(step[words.N]), int(step[words.POS]), int(settings[sampler.WINDOW])
    if step[words.STOP] or window == 0:
        return
    for i, token in enumerate(tokens[:n].tolist()):
        at = pos + i
        if at >= n_ctx or token >= n_vocab:
            continue
        replaced = int(history[at])
        gone = int(history[at - window]) if 0 <= at - window < pos else 0
        history[at] = token + 1
        if n - i <= window:
            counts[token] += 1
        if replaced or gone:  # a replaced token was drawn, and counted, before it was fed
            counts[(replaced or gone) - 1] -= 1


def _case(rng: np.random.Generator, name: str, n: int, pos: int, last_n: int, fed: int) -> Case:
    """A window that is right for the tokens before `pos` + `fed`, and `n` more tokens."""
    n_vocab, n_ctx = 50, 300
    before = rng.integers(0, n_vocab, pos + fed)
    history = np.zeros(n_ctx, np.uint32)
    history[: before.size] = before + 1
    window = n_ctx if last_n < 0 else last_n
    inside = before[max(before.size - window, 0) :]
    ops = {
        "step": step_words(n, pos),
        "tokens": rng.integers(0, n_vocab, n).astype(np.uint32),
        "settings": settings_case(repeat_penalty=1.1, repeat_last_n=last_n),
        "counts": np.bincount(inside, minlength=n_vocab).astype(np.uint32),
        "history": history,
    }
    return Case(name, ops, {"n_vocab": n_vocab, "n_ctx": n_ctx}, rows=n, exact=True)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Batches within, at and beyond the window, from the start and later on."""
    for n, pos, last_n in (
        (1, 0, 64), (1, 100, 64), (64, 0, 64), (200, 0, 64), (200, 30, 64), (65, 64, 64),
        (5, 100, 1), (200, 100, -1), (20, 100, 10_000), (20, 100, 0), (100, 250, 64),
    ):  # fmt: skip
        yield _case(rng, f"n={n} pos={pos} window={last_n}", n, pos, last_n, 0)
    yield _case(rng, "a drawn token is fed", 30, 100, 64, 1)


KERNEL = Kernel("sample_history", launch, reference, cases)
