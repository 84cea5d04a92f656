"""Logits against stored ones, and the likelihood of a text.

A reference file is a NumPy archive: `prompt_0`, `prompt_1`, … int (n,) hold ids, fed as they are
from position 0 on, and `ref_logits_0`, … float (n, n_vocab) the logits after each of them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import FileError
from .runner import Runner

Floats = npt.NDArray[np.float32]
LENGTHS = (1, 7, 40, 100)  # of the prompts that `save` makes
STEP = 64  # positions whose logits are in memory at a time
TOP = 5


@dataclass(frozen=True)
class Prompt:
    """Ids and the logits that belong to them (n, n_vocab)."""

    ids: list[int]
    logits: Floats


@dataclass(frozen=True)
class Agreement:
    """Of one prompt: NMSE over all and of the worst position, mean Kullback-Leibler divergence
    (nats, from the reference), parts of positions with the same best and of common best five."""

    positions: int
    nmse: float
    worst: float
    divergence: float
    top1: float
    top5: float
    not_finite: int


def read(path: Path, n_vocab: int) -> list[Prompt]:
    """The prompts of a reference file. FileError where it does not fit the model or format."""
    try:
        with np.load(path, allow_pickle=False) as data:
            names = [n for n in data.files if n.startswith("prompt_")]
            found = [_prompt(path, data, n.removeprefix("prompt_"), n_vocab) for n in names]
    except OSError as e:
        raise FileError(f"{path}: {e.strerror or e}") from e
    except (ValueError, zipfile.BadZipFile, EOFError) as e:
        raise FileError(f"{path}: no archive of NumPy arrays ({e})") from e
    if not found:
        raise FileError(f"{path}: holds no prompt_0 with ref_logits_0")
    return found


def _prompt(
    path: Path, data: np.lib.npyio.NpzFile, number: str, n_vocab: int
) -> Prompt:
    ids = np.asarray(data[f"prompt_{number}"])
    name = f"ref_logits_{number}"
    if name not in data.files:
        raise FileError(f"{path}: prompt_{number} without {name}")
    logits = np.asarray(data[name], np.float32)
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        raise FileError(f"{path}: prompt_{number} must be a row of ids, it is {ids.dtype} of "
                        f"shape {ids.shape}")  # fmt: skip
    if logits.shape != (ids.size, n_vocab):
        raise FileError(f"{path}: {name} has the shape {logits.shape}, the model needs "
                        f"{(ids.size, n_vocab)}")  # fmt: skip
    if ids.min() < 0 or ids.max() >= n_vocab:
        raise FileError(f"{path}: prompt_{number} holds an id outside of 0 … {n_vocab - 1}")
    return Prompt([int(i) for i in ids], logits)


def save(path: Path, runner: Runner, seed: int, told: Callable[[str], None]) -> list[int]:
    """Write a reference file of random prompts; returns their lengths."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    lengths = [n for n in LENGTHS if n <= runner.n_ctx]
    for i, n in enumerate(lengths):
        told(f"prompt {i + 1} of {len(lengths)}")
        ids = rng.integers(runner.spec.n_vocab, size=n)
        arrays[f"prompt_{i}"] = ids.astype(np.int32)
        arrays[f"ref_logits_{i}"] = runner.logits([int(t) for t in ids])
    try:
        with path.open("wb") as f:  # a name without .npz stays as it is
            np.savez(f, allow_pickle=False, **arrays)
    except OSError as e:
        raise FileError(f"{path} cannot be written: {e.strerror}") from e
    return lengths


def log_softmax(logits: Floats) -> npt.NDArray[np.float64]:
    """Logarithms of probabilities over the last axis."""
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))


def agreement(got: Floats, want: Floats) -> Agreement:
    """Compare logits (n, n_vocab)."""
    bad = int(np.count_nonzero(~np.isfinite(got) | ~np.isfinite(want)))
    if bad:
        inf = float("inf")
        return Agreement(len(want), inf, inf, inf, 0.0, 0.0, bad)
    error = np.square(got.astype(np.float64) - want).sum(axis=1)
    power = np.maximum(np.square(want.astype(np.float64)).sum(axis=1), 1e-300)
    a, b = log_softmax(want), log_softmax(got)
    divergence = (np.exp(a) * (a - b)).sum(axis=1).mean()
    count = min(TOP, want.shape[1])
    best = [np.argpartition(-x, count - 1, axis=1)[:, :count] for x in (want, got)]
    common = [len(np.intersect1d(x, y)) / count for x, y in zip(*best, strict=True)]
    same = want.argmax(axis=1) == got.argmax(axis=1)
    return Agreement(
        len(want), float(error.sum() / power.sum()), float((error / power).max()),
        max(float(divergence), 0.0), float(same.mean()), float(np.mean(common)), 0,
    )  # fmt: skip


def likelihoods(
    runner: Runner, ids: Sequence[int], told: Callable[[str], None]
) -> npt.NDArray[np.float64]:
    """Negative log-likelihood of every id but the first of each window of `n_ctx` positions."""
    found: list[npt.NDArray[np.float64]] = []
    for start in range(0, len(ids), runner.n_ctx):
        window = ids[start : start + runner.n_ctx]
        for at in range(0, len(window) - 1, STEP):
            told(f"{start + at} of {len(ids)} tokens")
            part = list(window[at : at + STEP])
            logs = log_softmax(runner.logits(part, at))
            after = np.asarray(window[at + 1 : at + 1 + len(part)], np.intp)
            found.append(-logs[np.arange(len(after)), after])
    return np.concatenate(found) if found else np.zeros(0)
