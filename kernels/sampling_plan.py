"""The sampling dispatches that a plan appends after its head, and the buffers they need."""

from __future__ import annotations

from ..engine import sampler
from ..engine import step as words
from ..engine.plan import Buf, Dispatch, Phase, Role
from . import sample_history, sample_pick, sample_scan


def sampling_bufs(n_vocab: int, n_ctx: int) -> dict[str, Buf]:
    """Buffers of the sampler by name.

    The host writes `settings` at the start of a generation and reads `out`; `counts` and
    `history` are the penalty window; `keys` and `best` are scratch of one step, but for the last
    row of `best`, which each step leaves cleared.
    """
    bufs = (
        Buf("settings", (sampler.SETTINGS_WORDS,), "U32", Role.INPUT),
        Buf("counts", (n_vocab,), "U32", Role.STATE),
        Buf("history", (n_ctx,), "U32", Role.STATE),
        Buf("keys", (n_vocab,), "U32"),
        Buf("best", sample_scan.best_shape(n_vocab), "U32", Role.STATE),
        Buf("out", (words.WORDS + words.RING,), "U32", Role.OUTPUT),
    )
    return {b.name: b for b in bufs}


def sampling_dispatches(
    logits: Buf, step: Buf, tokens: Buf, n_ctx: int
) -> tuple[list[Dispatch], list[Buf]]:
    """Draw one token from `logits` (1, n_vocab): dispatches in order, and the sampler's buffers."""
    n_vocab = logits.cols
    bufs = sampling_bufs(n_vocab, n_ctx)
    sizes = {"n_vocab": n_vocab, "group": sample_scan.group_size(n_vocab)}
    scan = {n: bufs[n] for n in ("settings", "counts", "keys", "best")}
    pick = {n: bufs[n] for n in ("keys", "best", "settings", "counts", "history")}
    pick |= {"step": step, "tokens": tokens, "result": bufs["out"]}
    dispatches = [
        Dispatch(
            sample_scan.KERNEL, scan | {"logits": logits, "step": step}, sizes, Phase.SAMPLING,
            "sample_scan",
        ),
        Dispatch(
            sample_pick.KERNEL, pick, sizes | {"n_ctx": n_ctx}, Phase.SAMPLING, "sample_pick"
        ),
    ]  # fmt: skip
    return dispatches, list(bufs.values())


def history_dispatch(step: Buf, tokens: Buf, n_vocab: int, n_ctx: int) -> Dispatch:
    """Note a batch of prompt tokens in the penalty window. Part of every prefill plan, before
    the dispatches that draw."""
    bufs = sampling_bufs(n_vocab, n_ctx)
    ops = {n: bufs[n] for n in ("settings", "counts", "history")}
    return Dispatch(
        sample_history.KERNEL, ops | {"step": step, "tokens": tokens},
        {"n_vocab": n_vocab, "n_ctx": n_ctx}, Phase.SAMPLING, "sample_history",
    )  # fmt: skip
