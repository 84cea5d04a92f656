"""experts_matmul_coop: the tokens of each expert times its matrix, on matrix cores."""

from __future__ import annotations

from . import matmul_coop
from .experts_coop_launch import launch_experts
from .kernel import Kernel
from .matmul_groups import experts_cases, experts_reference
from .matvec_launch import ALL_FORMATS, FEW_PLAIN

KERNEL = Kernel(
    "experts_matmul_coop", launch_experts, experts_reference("coop"),
    experts_cases("coop", (*ALL_FORMATS, *FEW_PLAIN)), needs=matmul_coop.KERNEL.needs,
)  # fmt: skip
