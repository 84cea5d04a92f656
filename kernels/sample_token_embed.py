"""sample_token_embed: sample_scan, sample_pick and embed_q8 of the token drawn in one dispatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from . import sample_pick_embed, sample_scan
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Workgroups as large as the one that draws; together they scan the vocabulary."""
    made = sample_pick_embed.launch(ops, params, rows, limits)
    ids = made.spec[0] * sample_scan.EACH
    return replace(made, grid=(-(-int(params["n_vocab"]) // ids), 1, 1))


def reference(
    logits: Array, settings: Array, counts: Array, step: Array, keys: Array, best: Array,
    tokens: Array, history: Array, result: Array, w: Matrix, g: Matrix, x: Array, yq: Array,
    ys: Array, ssq: Array, *, n_vocab: int, group: int, n_ctx: int, n_embd: int, scale: float,
) -> None:  # fmt: skip
    """As sample_scan, then as sample_pick_embed."""
    sample_scan.reference(
        logits, settings, counts, step, keys, best, n_vocab=n_vocab, group=group
    )
    sample_pick_embed.reference(
        keys, best, settings, step, tokens, counts, history, result, w, g, x, yq, ys, ssq,
        n_vocab=n_vocab, group=group, n_ctx=n_ctx, n_embd=n_embd, scale=scale,
    )  # fmt: skip


def _from_logits(case: Case, logits: Array) -> Case:
    """A case of sample_pick_embed with logits in place of their keys."""
    ops: dict[str, Array | Matrix] = dict(case.operands)
    n = logits.size
    ops |= {
        "logits": logits.astype(np.float32).reshape(1, n), "keys": np.zeros(n, np.uint32),
        "best": np.zeros(sample_scan.best_shape(n), np.uint32),
    }  # fmt: skip
    return replace(case, operands=ops)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of sample_pick_embed; several workgroups, with logits that are not finite."""
    for drawn, logits in sample_pick_embed.with_logits(rng):
        yield _from_logits(drawn, logits)


KERNEL = Kernel("sample_token_embed", launch, reference, cases)
