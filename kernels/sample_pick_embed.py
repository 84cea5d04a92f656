"""sample_pick_embed: sample_pick, then the row of the token drawn as embed_q8 makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from ..engine import step as words
from ..engine.sampler import Sampling
from . import embed_q8, sample_pick
from .kernel import Array, Case, Kernel, Launch, Matrix, Params, Shaped
from .limits import Limits
from .q8 import GROUP
from .reference import random_matrix, step_words

SCALE = 27.5
# Software devices compile a build for two seconds: cases take one format of each kind of decoder,
# embed_q8's take all, and the row is the same lines there.
FORMATS = ("F16", "Q4_0", "Q8_0", "Q6_K", "IQ3_S", "INT4_G64")


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """As sample_pick, in a build for the format of the embedding matrix."""
    return replace(sample_pick.launch(ops, params, rows, limits), build=ops["w"].format_name)


def reference(
    keys: Array, best: Array, settings: Array, step: Array, tokens: Array, counts: Array,
    history: Array, result: Array, w: Matrix, g: Matrix, x: Array, yq: Array, ys: Array,
    ssq: Array, *, n_vocab: int, group: int, n_ctx: int, n_embd: int, scale: float,
) -> None:  # fmt: skip
    """As sample_pick; where it draws, as embed_q8 of tokens[0] too, also at an end token."""
    drawn = int(step[words.DRAWS])
    sample_pick.reference(
        keys, best, settings, step, tokens, counts, history, result,
        n_vocab=n_vocab, group=group, n_ctx=n_ctx,
    )  # fmt: skip
    if int(step[words.DRAWS]) != drawn:
        embed_q8.reference(
            tokens, w, g, x, yq, ys, ssq, step_words(1, 0), n_embd=n_embd, row0=0, rows=n_vocab,
            scale=scale,
        )  # fmt: skip


def _with_row(rng: np.random.Generator, case: Case, name: str, cols: int) -> Case:
    """A case of sample_pick with a matrix of a row per id."""
    n_vocab = int(case.params["n_vocab"])
    ops: dict[str, Array | Matrix] = dict(case.operands) | {
        "w": random_matrix(rng, name, n_vocab, cols), "g": random_matrix(rng, "F32", 1, cols),
        "x": np.zeros((1, cols), np.float32), "yq": np.zeros(cols // 4, np.uint32),
        "ys": np.zeros((cols // GROUP, 2), np.float32),
        "ssq": np.zeros(cols // GROUP, np.float32),
    }  # fmt: skip
    params = dict(case.params) | {"n_embd": cols, "scale": SCALE}
    return replace(
        case, name=f"{name} cols={cols}, {case.name}", operands=ops, params=params, exact=False,
        limit=1e-5, int8=frozenset({"yq"}),
    )  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Formats; a vocabulary of many groups; draws that end generation, and those that draw
    nothing."""
    options = (Sampling(temp=0.0), Sampling(), Sampling(top_k=0, top_p=0.9))
    for i, fmt in enumerate(FORMATS):
        logits = rng.standard_normal(37) * 3
        drawn = sample_pick.case(f"options {i % 3}", logits, options[i % 3])
        yield _with_row(rng, drawn, fmt, (256, 768)[i % 2])
    few = np.arange(7.0)
    yield _with_row(rng, sample_pick.case("end token", few, options[0], (6,)), "Q8_0", 256)
    yield _with_row(rng, sample_pick.case("limit", few, options[0], LIMIT=71), "Q6_K", 512)
    wide = sample_pick.case("more groups than invocations", few, options[1])
    yield _with_row(rng, wide, "Q4_0", 33 * 512)
    many = rng.standard_normal(9000) * 3
    many[rng.integers(0, 9000, 500)] = np.nan
    window = Sampling(repeat_penalty=1.2, repeat_last_n=64)
    yield _with_row(rng, sample_pick.case("vocab=9000", many, window), "F16", 32)
    stopped = sample_pick.case("stopped", few, options[1], STOP=2)
    broken = sample_pick.case("nothing finite", few * np.nan, options[1])
    for drawn in (stopped, broken):
        case = _with_row(rng, drawn, "Q8_0", 256)
        unread = {n: np.zeros_like(case.operands[n], bool) for n in ("yq", "ys", "ssq")}
        yield replace(case, only=unread, int8=frozenset())  # not written


KERNEL = Kernel("sample_pick_embed", launch, reference, cases)
