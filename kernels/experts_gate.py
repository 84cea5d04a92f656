"""experts_gate: silu(gate) * up of the experts of a batch, in the form that products read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .experts_rows import batches, launch_rows, pick
from .kernel import Array, Case, Kernel, Launch, Params, Shaped
from .limits import Limits
from .quantize_layout import row_words, write
from .reference import silu


def launch(ops: Mapping[str, Shaped], params: Params, rows: int, limits: Limits) -> Launch:
    """One workgroup per row; y says by its type which form it has."""
    form = {"F16": "F16", "F32": "F32", "U32": "Q8"}[ops["y"].format_name]
    made = launch_rows(params, rows, int(params["slots"]), int(params["cols"]) // 8, limits)
    return Launch(form, made.spec, made.grid)


def reference(
    gu: Array, start: Array, y: Array, step: Array, *,
    cols: int, y_stride: int, experts: int, slots: int,
) -> None:
    """y (rows, cols) from gu (rows, 2 cols) for the rows below start[experts]."""
    count = int(start[experts])
    gate, up = gu[:count, :cols], gu[:count, cols : 2 * cols]
    put(silu(gate) * up, y, cols)


def put(values: Array, y: Array, cols: int) -> None:
    """Values into rows of float32, float16 or int8 blocks."""
    if y.dtype == np.float32:
        y[: len(values), :cols] = values
    else:
        write(values, y)


def forms(
    name: str, ops: dict[str, Array], params: dict[str, int | float], pairs: int, cols: int, n: int,
) -> Iterator[Case]:
    """The case in all forms; of int8 rows the quants are compared."""
    inside = np.arange(pairs)[:, None] < ops["start"][-1]
    for dtype in (np.float32, np.float16):
        only = {"y": inside.repeat(cols, 1)}
        made = {**ops, "y": np.zeros((pairs, cols), dtype)}
        yield Case(f"{name} {np.dtype(dtype).name}", made, {**params, "y_stride": cols},
                   rows=n, only=only, limit=1e-6)  # fmt: skip
    wide = row_words(cols)
    quants = np.zeros((pairs, wide * 4), bool)
    quants[:, :cols] = inside
    made = {**ops, "y": np.zeros((pairs, wide), np.uint32)}
    yield Case(f"{name} int8", made, {**params, "y_stride": wide}, rows=n, limit=1e-4,
               int8=frozenset({"y"}), only={"y": quants})  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every form."""
    for name, n, experts, slots, ops in batches(rng):
        pairs, cols = (n + 1) * slots, 32 * experts
        chosen = pick(ops, "start")
        chosen["gu"] = (rng.standard_normal((pairs, 2 * cols)) * 3).astype(np.float32)
        params: dict[str, int | float] = {"cols": cols, "experts": experts, "slots": slots}
        yield from forms(name, chosen, params, pairs, cols, n + 1)


KERNEL = Kernel("experts_gate", launch, reference, cases)
