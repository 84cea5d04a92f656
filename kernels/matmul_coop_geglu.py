"""matmul_coop_geglu: as matmul_coop_swiglu, gated by GELU."""

from __future__ import annotations

from .kernel import Kernel
from .matmul_coop_swiglu import cases, gated_by, launch, needs
from .reference import gelu

KERNEL = Kernel("matmul_coop_geglu", launch, gated_by(gelu), cases, needs=needs)
