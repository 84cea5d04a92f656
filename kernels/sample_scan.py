"""sample_scan: penalties, ordered keys and the best id of each group of the vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from ..engine import draw, sampler
from ..engine import step as words
from ..engine.sampler import Sampling, settings_words
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .reference import step_words

EACH = 4  # neighbouring ids per invocation


def group_size(n_vocab: int) -> int:
    """Ids per group: near sqrt(n_vocab / k) for the default k, where maxima and candidates of
    the chosen groups are equally many."""
    return 32 if n_vocab <= 1 << 16 else 64


def best_shape(n_vocab: int) -> tuple[int, int]:
    """Of `best`: a row per group, and one for the largest and the least of the maxima."""
    return -(-n_vocab // group_size(n_vocab)) + 1, 2


def best_of(keys: Array, group: int) -> Array:
    """What scan leaves in `best` for keys (n_vocab,): key and id of each group, then the ends."""
    n = keys.size
    best = np.zeros((-(-n // group) + 1, 2), np.uint32)
    for i, start in enumerate(range(0, n, group)):
        best[i, 1] = start + keys[start : start + group].argmax()
    best[:-1, 0] = keys[best[:-1, 1]]
    note_ends(best)
    return best


def note_ends(best: Array) -> None:
    """The last row: the largest key of all, the complement of the least maximum that is usable."""
    usable = best[:-1, 0][best[:-1, 0] != 0]
    if usable.size:
        best[-1] = np.maximum(best[-1], (usable.max(), ~usable.min()))


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """Enough workgroups to spread a vocabulary over a large device; groups never straddle two."""
    threads = limits.workgroup(256)
    per_workgroup = threads * EACH
    return Launch("", (threads,), (-(-int(params["n_vocab"]) // per_workgroup), 1, 1))


def reference(
    logits: Array, settings: Array, counts: Array, step: Array, keys: Array, best: Array,
    *, n_vocab: int, group: int,
) -> None:  # fmt: skip
    """keys (n_vocab,) of the penalized logits (1, n_vocab), 0 for what is never drawn;
    best (groups + 1, 2) = key, id, and in the last row the ends."""
    if step[words.STOP]:
        return
    x = logits.reshape(-1)[:n_vocab]
    keys[:n_vocab] = draw.order_keys(x)
    seen = np.flatnonzero(counts) if settings[sampler.WINDOW] else np.empty(0, np.intp)
    seen = seen[keys[seen] != 0]
    keys[seen] = draw.order_keys(draw.penalize(x[seen], counts[seen], settings))
    step[words.BAD] += np.uint32(n_vocab - np.count_nonzero(keys[:n_vocab]))
    first = sampler.SUPPRESSED
    keys[settings[first : first + int(settings[sampler.N_SUPPRESSED])]] = 0
    whole = n_vocab // group
    grouped = keys[: whole * group].reshape(whole, group)
    at = grouped.argmax(axis=1) if whole else np.empty(0, np.intp)
    best[:whole, 1] = at + np.arange(whole) * group
    if n_vocab % group:
        best[whole, 1] = whole * group + keys[whole * group : n_vocab].argmax()
    best[:-1, 0] = keys[best[:-1, 1]]
    note_ends(best)


SIZES = (1, 7, 288, 1000, 49152, 151936)


def settings_case(suppressed: Collection[int] = (), **options: float | int) -> Array:
    """Settings with two end ids that no case draws."""
    made = Sampling(**options)  # type: ignore[arg-type]
    return settings_words(made, (1 << 30, (1 << 30) + 1), suppressed)


def _case(name: str, logits: Array, settings: Array, counts: Array | None = None) -> Case:
    n = logits.size
    group = group_size(n)
    ops = {
        "logits": logits.astype(np.float32).reshape(1, n),
        "settings": settings,
        "counts": np.zeros(n, np.uint32) if counts is None else counts,
        "step": step_words(1, 5),
        "keys": np.zeros(n, np.uint32),
        "best": np.zeros(best_shape(n), np.uint32),
    }
    return Case(name, ops, {"n_vocab": n, "group": group}, exact=True)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Vocabulary sizes, all penalties, ties, and values that are not finite."""
    plain = settings_case()
    for n in SIZES:
        yield _case(f"vocab={n}", rng.standard_normal(n) * 4, plain)
    counts = (rng.integers(0, 40, 1000) * (rng.random(1000) < 0.3)).astype(np.uint32)
    penal = settings_case(repeat_penalty=1.3, presence_penalty=0.7, frequency_penalty=-0.1)
    yield _case("penalties", rng.standard_normal(1000) * 4, penal, counts)
    huge = settings_case(repeat_penalty=5.0)
    yield _case("penalty overflows", rng.choice([-3e38, 3e38], 1000), huge, counts)
    yield _case("ties", np.round(rng.standard_normal(1000)) * 0.0 - 0.0, plain)
    wild = rng.standard_normal(1000)
    wild[rng.integers(0, 1000, 500)] = rng.choice([np.nan, np.inf, -np.inf], 500)
    yield _case("not finite", wild, penal, counts)
    yield _case("nothing finite", np.full(1000, np.nan), plain)
    yield from _suppressed(rng)


def _suppressed(rng: np.random.Generator) -> Iterator[Case]:
    """Ids that are never drawn: few, as many as fit, whole groups, the ends of the vocabulary,
    with penalties and among logits that are not finite."""
    logits = rng.standard_normal(3000) * 4
    logits[[0, 5, 6, 7, 2999]] = 50, 60, np.nan, 70, 80
    counts = (rng.random(3000) < 0.3).astype(np.uint32)
    for ids in ((2999,), (0, 5, 6, 7), range(3, 300), range(0, 2048, 2)):
        settings = settings_case(tuple(ids), repeat_penalty=1.3)
        yield _case(f"suppressed={len(ids)} from {ids[0]}", logits, settings, counts)
    yield _case("one of one suppressed", np.ones(1), settings_case((0,)))


KERNEL = Kernel("sample_scan", launch, reference, cases)
