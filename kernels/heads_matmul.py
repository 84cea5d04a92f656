"""heads_matmul: a part of every token's values times each head's matrix, in float32."""

from __future__ import annotations

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
    "heads_matmul", grouped(BASES["f32"], all_tokens), heads_reference("f32"),
    heads_cases("f32", (*ALL_FORMATS, *FEW_PLAIN)),
)  # fmt: skip
