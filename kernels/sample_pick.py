"""sample_pick: top-k, top-p, min-p, temperature, the draw, and what a drawn token changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..engine import draw, sampler
from ..engine import step as words
from ..engine.sampler import Sampling, settings_words
from ..engine.step import RING, StopReason
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words
from .sample_scan import best_of, group_size

MAX_VOCAB = 1 << 20  # ids of one residue class fit the shader's bins


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup of 32 subgroups: enough to hide latency, and barriers cost by subgroup."""
    assert params["n_vocab"] <= MAX_VOCAB
    threads = limits.workgroup(min(1024, max(128, 32 * limits.subgroup_size)))
    return Launch("", (threads,), (1, 1, 1))


def reference(
    keys: Array, best: Array, settings: Array, step: Array, tokens: Array, counts: Array,
    history: Array, result: Array, *, n_vocab: int, group: int, n_ctx: int,
) -> None:  # fmt: skip
    """Draw from keys (n_vocab,); then advance `step` and the window, and fill `result`. The last
    row of `best` is cleared for the next scan."""
    if step[words.STOP]:
        return
    best[-1] = 0
    seed = int(step[words.SEED_LO]), int(step[words.SEED_HI])
    (u,) = draw.philox(int(step[words.DRAWS]), *seed)
    chosen = draw.choose(keys[:n_vocab], settings, u)
    if chosen < 0:
        step[words.STOP] = StopReason.NOT_FINITE
    else:
        pos = int(step[words.POS]) + int(step[words.N])
        result[words.WORDS + int(step[words.COUNT]) % RING] = chosen
        tokens[0] = chosen
        _remember(pos, chosen, int(settings[sampler.WINDOW]), counts, history[:n_ctx])
        step[words.N], step[words.POS] = 1, pos
        step[words.COUNT] += 1
        step[words.DRAWS] += 1
        ends = settings[sampler.END : sampler.END + int(settings[sampler.N_END])]
        if pos >= step[words.LIMIT]:
            step[words.STOP] = StopReason.LIMIT
        if chosen in ends:
            step[words.STOP] = StopReason.END_TOKEN
    result[: words.WORDS] = step[: words.WORDS]


def _remember(pos: int, token: int, window: int, counts: Array, history: Array) -> None:
    if window == 0 or pos >= history.size:
        return
    history[pos] = token + 1
    counts[token] += 1
    if pos >= window and history[pos - window]:
        counts[int(history[pos - window]) - 1] -= 1


def case(name: str, logits: Array, options: Sampling, end_ids: tuple[int, ...] = (),
          **changes: int) -> Case:  # fmt: skip
    """A decode step at position 70; `changes` are step words by name."""
    n, n_ctx, group = logits.size, 128, group_size(logits.size)
    keys = draw.order_keys(logits.astype(np.float32))
    step = step_words(1, 70)
    step[[words.SEED_LO, words.SEED_HI]] = sampler.seed_words(0x1234567890ABCDEF)
    step[[words.COUNT, words.DRAWS]] = 66, 66
    for word, value in changes.items():
        step[getattr(words, word)] = value
    history = np.zeros(n_ctx, np.uint32)
    history[:71] = np.arange(71) % n + 1
    ops = {
        "keys": keys, "best": best_of(keys, group), "step": step,
        "settings": settings_words(options, end_ids),
        "tokens": np.zeros(4, np.uint32), "counts": np.full(n, 9, np.uint32),
        "history": history, "result": np.zeros(words.WORDS + RING, np.uint32),
    }  # fmt: skip
    params = {"n_vocab": n, "group": group, "n_ctx": n_ctx}
    return Case(name, ops, params, exact=True)


OPTIONS: dict[str, Sampling] = {
    "default": Sampling(),
    "greedy": Sampling(temp=0.0),
    "hot": Sampling(temp=3.0, top_p=1.0, min_p=0.0, top_k=20),
    "top-k 1": Sampling(top_k=1),
    "top-k 128": Sampling(top_k=128, top_p=1.0, min_p=0.0, temp=2.0),
    "top-k 129": Sampling(top_k=129, top_p=1.0, min_p=0.0, temp=2.0),
    "top-k 1000": Sampling(top_k=1000, top_p=0.99, min_p=0.0),
    "top-k 10^9": Sampling(top_k=10**9, top_p=0.9),
    "all off": Sampling(top_k=0, top_p=1.0, min_p=0.0, temp=1.0),
    "top-p": Sampling(top_k=0, top_p=0.8, min_p=0.0, temp=1.5),
    "top-p tiny": Sampling(top_k=0, top_p=1e-9, min_p=0.0),
    "min-p": Sampling(top_k=0, top_p=1.0, min_p=0.1, temp=1.2),
    "penalties": Sampling(repeat_penalty=1.2, repeat_last_n=64),
}


ALL = tuple(OPTIONS)


def _shapes(rng: np.random.Generator) -> Iterator[tuple[str, tuple[str, ...], Array]]:
    """Logits that lead through every branch of the selection, and the options to try on them."""
    yield "vocab=1", ("default", "greedy", "all off"), np.zeros(1)
    yield "vocab=7", ("default", "top-k 10^9"), rng.standard_normal(7)
    yield "vocab=288", ALL, rng.standard_normal(288) * 3
    yield "vocab=1000 ties", ALL, np.round(rng.standard_normal(1000) * 2)
    large = ("default", "greedy", "all off", "top-p", "top-k 128", "top-k 1000")
    yield "vocab=49152", large, rng.standard_normal(49152) * 3
    yield "vocab=151936", large[:4], rng.standard_normal(151936) * 3
    lumpy = rng.standard_normal(5000) * 3
    lumpy[1600:1800] += 20  # the best ids are neighbours: more candidates than the list holds
    yield "best together", ("default", "hot", "top-k 128", "top-p"), lumpy
    outlier = rng.standard_normal(5000)
    outlier[123] = 3e38  # linear bins see one lump
    yield "outlier", ("default", "top-k 1000", "top-p"), outlier
    yield "all equal", ("default", "greedy", "top-k 1000", "top-p"), np.ones(3000)
    holes = rng.standard_normal(1000)
    holes[rng.integers(0, 1000, 3000)] = np.nan  # some dozens are left
    yield "few finite", ("default", "top-k 129", "all off", "top-p"), holes


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Logits of many shapes under all options, and every way for a draw to end generation."""
    for shape, names, logits in _shapes(rng):
        for name in names:
            yield case(f"{shape}, {name}", logits, OPTIONS[name])
    few, greedy = np.arange(7.0), OPTIONS["greedy"]
    yield case("end token", few, greedy, (3, 6))
    yield case("limit", few, greedy, LIMIT=71)
    yield case("end token at the limit", few, greedy, (6,), LIMIT=71)
    yield case("context full", few, OPTIONS["penalties"], POS=127)
    yield case("stopped", few, greedy, STOP=2)
    yield case("nothing finite", np.full(300, np.inf), OPTIONS["default"])
    yield case("after a prompt", few, greedy, POS=0, N=50, COUNT=0, DRAWS=0)


KERNEL = Kernel("sample_pick", launch, reference, cases)
