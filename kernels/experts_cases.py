"""Cases of the expert kernels: stacks of all experts or of some, empty slots, slots of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import q8
from .experts import slots_of
from .kernel import Array, Case
from .matvec_launch import ALL_FORMATS, FEW_PLAIN
from .reference import random_matrix, step_words
from .routing import f32_matrix

# (experts, first, rows, cols): all experts in the stack, or some
SHAPES = ((5, 0, 32, 256), (4, 1, 96, 512), (3, 2, 64, 768))
SLOTS = 4
ALL_SHAPES = ("Q4_K", "Q3_K")  # a format in chunks, one in quads (shaders/units_q8.glsl)
BIASED = ("Q4_K", "Q8_0")  # cases with biases: the rest does not depend on the format


def case_route(rng: np.random.Generator, experts: int, first: int) -> Array:
    """A route of SLOTS slots: the last two experts of a stack, one outside if it is not the whole,
    and an empty slot."""
    route = np.zeros((1, SLOTS, 2), np.float32)
    route[0, :, 0] = (first + experts - 1, first + experts if first else 1, -1, first)
    route[0, :, 1] = rng.uniform(0.1, 1.5, SLOTS) * (route[0, :, 0] >= 0)
    return route


def case_shapes(rng: np.random.Generator, formats: tuple[str, ...]) -> Iterator[
    tuple[str, str, tuple[int, int, int, int], dict[str, Any]]
]:
    """Name, format, shape and common operands of every case; two formats in all shapes."""
    for i, fmt in enumerate(formats):
        for shape in SHAPES if fmt in ALL_SHAPES else (SHAPES[i % len(SHAPES)],):
            experts, first, rows, cols = shape
            ops = {"route": case_route(rng, experts, first), "step": step_words(1, 5)}
            yield f"{fmt} {experts} experts from {first} {rows}x{cols}", fmt, shape, ops


def swiglu_case(
    rng: np.random.Generator, fmt: str, shape: tuple[int, int, int, int], biased: bool
) -> dict[str, Any]:
    """The weights of gate and up."""
    experts, _, rows, cols = shape
    ops: dict[str, Any] = {"w": random_matrix(rng, fmt, 2 * experts * rows, cols, 2 / cols**0.5)}
    if biased:
        ops["b"] = f32_matrix(rng.standard_normal((1, 2 * experts * rows)) * 3)
    return ops


def swiglu_params(shape: tuple[int, int, int, int]) -> dict[str, int | float]:
    """Push words of gate and up."""
    experts, first, rows, cols = shape
    return {"cols": cols, "rows": rows, "eps": 1e-5, "experts": experts, "first": first}


def written(route: Array, experts: int, first: int, width: int) -> Array:
    """Mask (slots, width) of the slots that a stack serves."""
    mask = np.zeros((SLOTS, width), bool)
    for slot, _, _ in slots_of(route[0], experts, first):
        mask[slot] = True
    return mask


def q8_swiglu_cases(rng: np.random.Generator, biased: bool) -> Iterator[Case]:
    """Every quantized format; some with biases."""
    for name, fmt, shape, ops in case_shapes(rng, BIASED if biased else q8.FORMATS):
        experts, first, rows, cols = shape
        ops |= q8.vector_operands(rng, cols) | swiglu_case(rng, fmt, shape, biased)
        ops["yq"] = np.zeros((SLOTS, rows // 4), np.uint32)
        ops["ys"] = np.zeros((SLOTS, rows // q8.GROUP, 2), np.float32)
        quants = written(ops["route"], experts, first, rows)
        scales = np.repeat(written(ops["route"], experts, first, rows // 16)[..., None], 2, axis=2)
        yield Case(name, ops, swiglu_params(shape), limit=1e-5, int8=frozenset({"yq"}),
                   only={"yq": quants, "ys": scales})  # fmt: skip


def q8_down_cases(rng: np.random.Generator, biased: bool) -> Iterator[Case]:
    """Every quantized format; some with biases."""
    formats = BIASED if biased else q8.FORMATS
    for name, fmt, (experts, first, rows, cols), ops in case_shapes(rng, formats):
        ops |= q8.vector_operands(rng, SLOTS * cols)
        ops |= {
            "w": random_matrix(rng, fmt, experts * rows, cols, 1 / cols**0.5),
            "g": random_matrix(rng, "F32", 1, rows),
            "y": rng.standard_normal((1, rows)).astype(np.float32),
            "yq": np.zeros(rows // 4, np.uint32),
            "ys": np.zeros((rows // 16, 2), np.float32), "ssq": np.zeros(rows // 16, np.float32),
        }  # fmt: skip
        if biased:
            ops["b"] = f32_matrix(rng.standard_normal((1, experts * rows)))
        params = {"cols": cols, "rows": rows, "experts": experts, "first": first}
        yield Case(name, ops, params, limit=1e-5, int8=frozenset({"yq"}))


def f32_swiglu_cases(rng: np.random.Generator, biased: bool) -> Iterator[Case]:
    """Every format; some with biases."""
    for name, fmt, shape, ops in case_shapes(rng, BIASED if biased else (*ALL_FORMATS, *FEW_PLAIN)):
        experts, first, rows, cols = shape
        ops |= swiglu_case(rng, fmt, shape, biased)
        ops |= {
            "x": rng.standard_normal((1, cols)).astype(np.float32),
            "g": random_matrix(rng, "F32", 1, cols),
            "y": np.zeros((1, SLOTS * rows), np.float32),
        }  # fmt: skip
        only = {"y": written(ops["route"], experts, first, rows).reshape(1, -1)}
        yield Case(name, ops, swiglu_params(shape), only=only, scale=0.5)


def f32_down_cases(rng: np.random.Generator, biased: bool) -> Iterator[Case]:
    """Every format; some with biases."""
    formats = BIASED if biased else (*ALL_FORMATS, *FEW_PLAIN)
    for name, fmt, (experts, first, rows, cols), ops in case_shapes(rng, formats):
        ops |= {
            "x": rng.standard_normal((1, SLOTS * cols)).astype(np.float32),
            "w": random_matrix(rng, fmt, experts * rows, cols, 1 / cols**0.5),
            "y": rng.standard_normal((1, rows)).astype(np.float32),
        }  # fmt: skip
        if biased:
            ops["b"] = f32_matrix(rng.standard_normal((1, experts * rows)))
        params = {"cols": cols, "rows": rows, "experts": experts, "first": first}
        yield Case(name, ops, params, scale=0.5)
