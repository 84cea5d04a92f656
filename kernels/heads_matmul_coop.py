"""heads_matmul_coop: a part of every token's values times each head's matrix, on matrix cores."""

from __future__ import annotations

from . import matmul_coop
from .kernel import Kernel
from .matmul_groups import (
    BASES,
    all_tokens,
    grouped,
    heads_cases,
    heads_reference,
)
from .matvec_launch import ALL_FORMATS, FEW_PLAIN

KERNEL = Kernel(
    "heads_matmul_coop", grouped(BASES["coop"], all_tokens), heads_reference("coop"),
    heads_cases("coop", (*ALL_FORMATS, *FEW_PLAIN)), needs=matmul_coop.KERNEL.needs,
)  # fmt: skip
