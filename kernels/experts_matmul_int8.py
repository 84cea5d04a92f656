"""experts_matmul_int8: the tokens of each expert times its matrix, in int8."""

from __future__ import annotations

from .kernel import Kernel
from .matmul_groups import (
    BASES,
    each_expert,
    experts_cases,
    experts_reference,
    grouped,
)
from .q8 import FORMATS

KERNEL = Kernel(
    "experts_matmul_int8", grouped(BASES["int8"], each_expert), experts_reference("int8"),
    experts_cases("int8", FORMATS), needs=lambda limits: limits.int_dot,
)  # fmt: skip
