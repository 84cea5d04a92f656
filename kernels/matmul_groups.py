"""Products of a batch with several matrices: the tokens of each expert with its own, or a part of
every token's values with each head's. Launches and cases; the kernels are experts_matmul… and
heads_matmul….
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..engine import step as words
from . import matmul_coop_launch, matmul_int8_launch, matmul_launch
from .experts import times_rows
from .experts_rows import case_batch, pick
from .kernel import Array, Case, Launch, Launcher, Params, Shaped
from .limits import Limits
from .matmul_coop_launch import LIMIT
from .quantize_layout import pack, row_words, unpack
from .reference import Floats, random_matrix, step_words

Values = Callable[[Array, int], Floats]  # rows in some form and their columns -> float32


def grouped(base: Launcher, tokens: Callable[[Params, int], int]) -> Launcher:
    """The launch of a plain product, with `groups` matrices along z. `tokens`: how many of a batch
    a matrix sees, by which the tile is chosen."""

    def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
        m, groups = int(params["rows"]), int(params["groups"])
        tall = {**params, "rows": m * groups}
        made = base(ops, tall, max(1, tokens(params, rows)), limits)
        bm, bn = made.spec[1:3]
        grid = (-(-rows // bn), -(-m // bm), groups)
        return Launch(made.build, made.spec, grid, made.subgroup_size)

    return launch


def each_expert(params: Params, rows: int) -> int:
    """Tokens of an expert when all are equally liked."""
    return rows * int(params["slots"]) // int(params["experts"])


def all_tokens(params: Params, rows: int) -> int:
    """Every head sees every token."""
    return rows


BASES: dict[str, Launcher] = {
    "f32": matmul_launch.launch, "int8": matmul_int8_launch.launch,
    "coop": matmul_coop_launch.launch,
}  # fmt: skip


def as_float(x: Array, cols: int) -> Floats:
    """Rows of float32 or float16."""
    return np.asarray(x[:, :cols], np.float32)


VALUES: dict[str, Values] = {"f32": as_float, "int8": unpack, "coop": as_float}


def experts_reference(form: str) -> Callable[..., None]:
    """y[row, y_off : y_off + rows] = W of the row's expert times x[row], for rows in order of the
    experts; see experts_rows.py. Weights hold the experts from `first` on."""

    def reference(
        x: Array, w: Any, y: Array, step: Array, start: Array, *, cols: int, rows: int,
        x_stride: int, y_stride: int, y_off: int, first: int, row0: int, groups: int, slots: int,
        experts: int,
    ) -> None:
        for e in range(groups):
            a, b = int(start[first + e]), int(start[first + e + 1])
            if a < b:
                values = VALUES[form](x[a:b], cols)
                y[a:b, y_off : y_off + rows] = times_rows(values, w, row0 + e * rows, rows)

    return reference


def heads_reference(form: str) -> Callable[..., None]:
    """y[i] at y_off + h y_head = W of head h times the values of x[i] from h x_head on (in int8: of
    the row i * heads + h), for i < n."""

    def reference(
        x: Array, w: Any, y: Array, step: Array, *, cols: int, rows: int, x_stride: int,
        y_stride: int, y_off: int, x_head: int, y_head: int, groups: int,
    ) -> None:
        n = int(step[words.N])
        flat = x.reshape(-1)[: n * x_stride].reshape(n, x_stride)
        out = y.reshape(-1)[: n * y_stride].reshape(n, y_stride)
        for h in range(groups):
            part = flat[:, h * x_head : h * x_head + (row_words(cols) if form == "int8" else cols)]
            at = y_off + h * y_head
            out[:, at : at + rows] = times_rows(VALUES[form](part, cols), w, h * rows, rows)

    return reference


def convert(x: Floats, form: str) -> Any:
    """Activations in the form that a product reads."""
    return {"f32": x, "coop": x.astype(np.float16), "int8": pack(x)}[form]


# (tokens, experts, slots, rows, cols)
SHAPES = ((2, 5, 2, 32, 256), (40, 4, 2, 96, 512))


def experts_cases(form: str, formats: tuple[str, ...]) -> Callable[..., Iterator[Case]]:
    """Every format once, the last of two experts in the weights, gates and ups behind them."""

    def cases(rng: np.random.Generator) -> Iterator[Case]:
        for i, fmt in enumerate(formats):
            n, experts, slots, rows, cols = SHAPES[i % 2]
            first = i % 2
            ops = pick(case_batch(rng, n, experts, slots, 0), "start")
            x = rng.standard_normal(((n + 1) * slots, cols)).astype(np.float32)
            held = experts - first
            ops |= {
                "x": convert(x, form), "y": np.zeros((len(x), 2 * rows), np.float32),
                "w": random_matrix(rng, fmt, 2 * held * rows, cols, cols**-0.5),
            }  # fmt: skip
            row = np.arange(len(x))[:, None]
            inside = (row >= ops["start"][first]) & (row < ops["start"][-1])
            only = {"y": inside & (np.arange(2 * rows) >= rows)}
            params = {
                "cols": cols, "rows": rows, "x_stride": ops["x"].shape[1], "y_stride": 2 * rows,
                "y_off": rows, "first": first, "row0": held * rows, "groups": held,
                "slots": slots, "experts": experts,
            }  # fmt: skip
            yield Case(f"{fmt} n={n} {slots} of {experts} experts {rows}x{cols}", ops, params,
                       rows=n + 1, only=only, limit=LIMIT if form == "coop" else 1e-10,
                       scale=0.5)  # fmt: skip

    return cases


def heads_cases(form: str, formats: tuple[str, ...]) -> Callable[..., Iterator[Case]]:
    """Every format once; heads with values that the product leaves out, in both x and y."""

    def cases(rng: np.random.Generator) -> Iterator[Case]:
        for i, fmt in enumerate(formats):
            n, heads, rows, cols = ((3, 4, 32, 256), (40, 3, 96, 512))[i % 2]
            x = rng.standard_normal(((n + 1) * heads, cols)).astype(np.float32)
            packed = convert(x, form)
            head = packed.shape[1] if form == "int8" else cols + 32
            if form != "int8":
                packed = np.pad(packed, ((0, 0), (0, 32)))
            ops = {
                "x": packed.reshape(n + 1, -1), "step": step_words(n, 4),
                "y": np.zeros((n + 1, heads * (rows + 64)), np.float32),
                "w": random_matrix(rng, fmt, heads * rows, cols, cols**-0.5),
            }  # fmt: skip
            inside = np.zeros((n + 1, heads, rows + 64), bool)
            inside[:n, :, :rows] = True
            params = {
                "cols": cols, "rows": rows, "x_stride": heads * head,
                "y_stride": heads * (rows + 64), "y_off": 0, "x_head": head, "y_head": rows + 64,
                "groups": heads,
            }  # fmt: skip
            yield Case(f"{fmt} n={n} {heads} heads {rows}x{cols}", ops, params, rows=n + 1,
                       only={"y": inside.reshape(n + 1, -1)},
                       limit=LIMIT if form == "coop" else 1e-10, scale=0.5)  # fmt: skip

    return cases
