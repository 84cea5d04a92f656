"""Primitives of dense layers: single products, gate and up, pairs of products of one input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..kernels import (
    matmul,
    matmul_add,
    matmul_coop,
    matmul_coop_add,
    matmul_coop_geglu,
    matmul_coop_swiglu,
    matmul_int8,
    matmul_int8_add,
    matvec,
    matvec_add,
    matvec_int8,
    matvec_int8_add,
    matvec_q8_add,
    norm_matvec,
    norm_matvec_geglu,
    norm_matvec_q8,
    norm_matvec_q8_geglu,
    norm_matvec_q8_swiglu,
    norm_matvec_swiglu,
    q8,
    swiglu,
)
from ..kernels.kernel import Kernel
from ..kernels.matmul_groups import convert
from ..kernels.reference import random_matrix, step_words
from .harness_chain import Chain, Link, Output, chain_of
from .primitives import (
    Check,
    Limit,
    Primitive,
    fitting_rows,
    formats_of,
    normal,
    ragged,
    weight,
)

EPS = 1e-5
TOKENS = (2, 4, 8, 11)
VECTOR = (matvec.KERNEL, matvec_add.KERNEL, norm_matvec.KERNEL)
VECTOR_Q8 = (norm_matvec_q8.KERNEL, matvec_q8_add.KERNEL)
# batches: kernel and form of its activations
BATCH: tuple[tuple[Kernel, str], ...] = (
    (matmul.KERNEL, "f32"), (matmul_add.KERNEL, "f32"), (matmul_int8.KERNEL, "int8"),
    (matmul_int8_add.KERNEL, "int8"), (matmul_coop.KERNEL, "coop"),
    (matmul_coop_add.KERNEL, "coop"), (matvec_int8.KERNEL, "int8"),
    (matvec_int8_add.KERNEL, "int8"),
)  # fmt: skip
FEW = (matvec_int8.KERNEL, matvec_int8_add.KERNEL)  # for up to 8 tokens
GATED = (norm_matvec_swiglu.KERNEL, norm_matvec_geglu.KERNEL)
GATED_Q8 = (norm_matvec_q8_swiglu.KERNEL, norm_matvec_q8_geglu.KERNEL)
SHORT, LONG, PAIR = (1536, 6144), (6144, 16384), (2048, 576)
Shape = tuple[int, int]  # rows, cols


def show(fmt: str, shape: Shape, rows: int = 0) -> str:
    """As "Q4_K 1536x6144", rows first; `rows`: those that fit, if fewer."""
    part = f" ({rows} of the rows)" if rows and rows < shape[0] else ""
    return f"{fmt} {shape[0]}x{shape[1]}{part}"


# --- one token -----------------------------------------------------------------------------------


def vector(kernel: Kernel, fmt: str, shape: Shape, rng: np.random.Generator) -> Chain:
    """A float32 mat-vec."""
    rows, cols = shape
    ops: dict[str, Any] = {
        "x": normal(rng, 1, cols), "w": weight(rng, fmt, rows, cols), "y": normal(rng, 1, rows),
        "step": step_words(1, 5),
    }  # fmt: skip
    params: dict[str, int | float] = {"cols": cols, "rows": rows, "y_stride": rows, "y_off": 0}
    if any(b.name == "g" for b in kernel.interface.bindings):
        ops["g"], params["eps"] = random_matrix(rng, "F32", 1, cols), EPS
    return chain_of(ops, [Link(kernel, params)], "y")


def vector_q8(kernel: Kernel, fmt: str, shape: Shape, rng: np.random.Generator) -> Chain:
    """A mat-vec with int8 activations."""
    rows, cols = shape
    ops = q8.vector_operands(rng, cols)
    ops |= {"w": weight(rng, fmt, rows, cols), "y": normal(rng, 1, rows)}
    if kernel is norm_matvec_q8.KERNEL:
        return chain_of(
            ops, [Link(kernel, {"cols": cols, "rows": rows, "y_off": 0, "eps": EPS})], "y"
        )
    ops |= {"g": random_matrix(rng, "F32", 1, rows), **groups(rows)}
    ops["ssq"] = np.zeros(rows // 16, np.float32)
    return chain_of(ops, [Link(kernel, {"cols": cols, "rows": rows})], "y", "ssq",
                    Output("yq", scales="ys"))  # fmt: skip


def groups(n: int) -> dict[str, Any]:
    """Room for n values in int8 groups."""
    return {"yq": np.zeros(n // 4, np.uint32), "ys": np.zeros((n // 16, 2), np.float32)}


def batch(kernel: Kernel, form: str, fmt: str, shape: Shape, n: int,
          rng: np.random.Generator) -> Chain:  # fmt: skip
    """A product of n tokens."""
    rows, cols = shape
    x = convert(normal(rng, n, cols), form)
    ops = {"x": x, "w": weight(rng, fmt, rows, cols), "y": normal(rng, n, rows),
           "step": step_words(n, 2)}  # fmt: skip
    params = {"cols": cols, "rows": rows, "x_stride": x.shape[1], "y_stride": rows, "y_off": 0}
    return chain_of(ops, [Link(kernel, params, n)], "y")


def single_checks(room: int) -> Iterator[Check]:
    """Every format and form: short rows, long rows, an odd number of blocks; batches."""
    for kernels, make in ((VECTOR, vector), (VECTOR_Q8, vector_q8)):
        for k, kernel in enumerate(kernels):
            for i, fmt in enumerate(formats_of(kernel)):
                shapes = [SHORT, (576, ragged(fmt, 6144))]
                # the largest weights take the time: each format meets each of them in one form
                if (i + k) % len(kernels) == 0 or len(formats_of(kernel)) < 5:
                    shapes.append(LONG)
                for shape in shapes:
                    rows = fitting_rows(fmt, *shape, room)
                    name = f"{kernel.name} {show(fmt, shape, rows)}"
                    yield Check(name, (kernel,), partial(make, kernel, fmt, (rows, shape[1])),
                                timed=shape is not shapes[1])  # fmt: skip
    for kernel, form in BATCH:
        tokens = TOKENS[:3] if kernel in FEW else TOKENS
        for i, fmt in enumerate(formats_of(kernel)):
            for n in tokens if fmt in ("Q4_K", "INT4_G64") else (tokens[i % len(tokens)],):
                yield Check(f"{kernel.name} {show(fmt, SHORT)} S={n}", (kernel,),
                            partial(batch, kernel, form, fmt, SHORT, n), timed=n == 8)  # fmt: skip
        for fmt in ("Q4_K", "INT4_G64"):
            rows = fitting_rows(fmt, *LONG, room)
            n = tokens[-1]
            yield Check(f"{kernel.name} {show(fmt, LONG, rows)} S={n}", (kernel,),
                        partial(batch, kernel, form, fmt, (rows, LONG[1]), n))  # fmt: skip


# --- gate and up ---------------------------------------------------------------------------------


def gated(kernel: Kernel, fmt: str, shape: Shape, rng: np.random.Generator) -> Chain:
    """Gate, up and activation of one token."""
    rows, cols = shape
    w = weight(rng, fmt, 2 * rows, cols)
    params: dict[str, int | float] = {"cols": cols, "rows": rows, "eps": EPS}
    if kernel in GATED_Q8:
        ops = q8.vector_operands(rng, cols) | {"w": w, **groups(rows)}
        return chain_of(ops, [Link(kernel, params)], Output("yq", scales="ys"))
    ops = {"x": normal(rng, 1, cols), "w": w, "g": random_matrix(rng, "F32", 1, cols),
           "y": normal(rng, 1, rows), "step": step_words(1, 5)}  # fmt: skip
    return chain_of(ops, [Link(kernel, params | {"y_stride": rows, "y_off": 0})], "y")


def gated_batch(kernel: Kernel, fmt: str, shape: Shape, n: int, rng: np.random.Generator) -> Chain:
    """The same of n tokens: one kernel on matrix cores, else a product and the gate."""
    rows, cols = shape
    x, w = normal(rng, n, cols), weight(rng, fmt, 2 * rows, cols)
    ops: dict[str, Any] = {"w": w, "step": step_words(n, 2)}
    if kernel is matmul.KERNEL:
        ops |= {"x": x, "gu": normal(rng, n, 2 * rows), "y": normal(rng, n, rows)}
        product = {"cols": cols, "rows": 2 * rows, "x_stride": cols, "y_stride": 2 * rows,
                   "y_off": 0}  # fmt: skip
        return chain_of(ops, [Link(kernel, product, n, {"y": "gu"}),
                              Link(swiglu.KERNEL, {"n_ff": rows}, n)], "y")  # fmt: skip
    ops |= {"x": x.astype(np.float16), "y": np.zeros((n, rows), np.float16)}
    params = {"cols": cols, "rows": rows, "x_stride": cols, "y_stride": rows, "y_off": 0}
    return chain_of(ops, [Link(kernel, params, n)], "y")


def gated_checks(room: int) -> Iterator[Check]:
    """Every format: 6144 to 2048 and an odd number of blocks; batches."""
    for kernel in (*GATED, *GATED_Q8):
        for fmt in formats_of(kernel):
            shapes = ((2048, 6144), (1440, ragged(fmt, 4608)))
            for shape in shapes if kernel in (GATED[0], GATED_Q8[0]) else shapes[1:]:
                make = partial(gated, kernel, fmt, shape)
                yield Check(f"{kernel.name} {show(fmt, shape)}", (kernel,), make,
                            timed=shape is shapes[0])  # fmt: skip
    for kernel in (matmul.KERNEL, matmul_coop_swiglu.KERNEL, matmul_coop_geglu.KERNEL):
        for i, fmt in enumerate(formats_of(kernel)):
            if fmt not in formats_of(norm_matvec_swiglu.KERNEL):
                continue
            n = TOKENS[i % 4]
            yield Check(f"{kernel.name} {show(fmt, (2048, 6144))} S={n}", (kernel, swiglu.KERNEL),
                        partial(gated_batch, kernel, fmt, (2048, 6144), n))  # fmt: skip


# --- pairs ---------------------------------------------------------------------------------------


def pair(kernel: Kernel, fmts: Sequence[str], rng: np.random.Generator) -> Chain:
    """Two products of one input side by side: one dispatch, or two where the formats differ."""
    cols, total = SHORT[1], sum(PAIR)
    int8 = kernel is norm_matvec_q8.KERNEL
    ops: dict[str, Any] = q8.vector_operands(rng, cols) if int8 else {
        "x": normal(rng, 1, cols), "g": random_matrix(rng, "F32", 1, cols),
        "step": step_words(1, 5),
    }  # fmt: skip
    ops["y"] = normal(rng, 1, total)
    links, first = [], 0
    for i, (fmt, rows) in enumerate(zip(fmts, PAIR if len(fmts) > 1 else (total,), strict=True)):
        ops[f"w{i}"] = weight(rng, fmt, rows, cols)
        params: dict[str, int | float] = {"cols": cols, "rows": rows, "y_off": first, "eps": EPS}
        if not int8:
            params["y_stride"] = total
        links.append(Link(kernel, params, 1, {"w": f"w{i}"}))
        first += rows
    return chain_of(ops, links, "y")


def pair_checks(room: int) -> Iterator[Check]:
    """Every format; two formats."""
    for kernel in (norm_matvec.KERNEL, norm_matvec_q8.KERNEL):
        for fmt in formats_of(kernel):
            yield Check(f"{kernel.name} {fmt} 2048+576x6144", (kernel,),
                        partial(pair, kernel, (fmt,)), timed=True)  # fmt: skip
        yield Check(f"{kernel.name} Q4_K 2048x6144 + Q8_0 576x6144", (kernel,),
                    partial(pair, kernel, ("Q4_K", "Q8_0")))  # fmt: skip
    for kernel, form in BATCH[:6:2]:
        for n in (2, 8):
            yield Check(f"{kernel.name} Q4_K 2624x6144 S={n}", (kernel,),
                        partial(batch, kernel, form, "Q4_K", (sum(PAIR), SHORT[1]), n))  # fmt: skip


PRODUCT = Limit("max rel", 1e-3, "sums in float32 of up to 16,384 terms err by 1e-6; factors "
                "rounded to float16, where matrix cores take them, by 3e-4")  # fmt: skip
GATE = Limit("max rel", 2e-3, "two such products multiplied; on matrix cores the results are "
             "float16, 1 in 1,024 from one to the next")  # fmt: skip
PRIMITIVES = (
    Primitive("product", "one product: mat-vec and matmul forms", PRODUCT, single_checks),
    Primitive("gate-up", "gate and up with the activation between", GATE, gated_checks),
    Primitive("pair", "query and key/value compression, q_a and kv_a", PRODUCT, pair_checks),
)
