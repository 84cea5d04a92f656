"""experts_matmul_coop: the tokens of each expert times its matrix, on matrix cores."""

from __future__ import annotations

from . import matmul_coop
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
    "experts_matmul_coop", grouped(BASES["coop"], each_expert), experts_reference("coop"),
    experts_cases("coop", (*ALL_FORMATS, *FEW_PLAIN)), needs=matmul_coop.KERNEL.needs,
)  # fmt: skip
