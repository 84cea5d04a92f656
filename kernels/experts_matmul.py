"""experts_matmul: the tokens of each expert times its matrix, in float32."""

from __future__ import annotations

from .kernel import Kernel
from .matmul_groups import (
    BASES,
    each_expert,
    experts_cases,
    experts_reference,
    grouped,
)
from .matvec_launch import ALL_FORMATS, FEW_PLAIN

KERNEL = Kernel(
    "experts_matmul", grouped(BASES["f32"], each_expert), experts_reference("f32"),
    experts_cases("f32", (*ALL_FORMATS, *FEW_PLAIN)),
)  # fmt: skip
