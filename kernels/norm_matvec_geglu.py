"""norm_matvec_geglu: as norm_matvec_swiglu, y = gelu(gate) * up."""

from __future__ import annotations

from .kernel import Kernel
from .matvec_launch import launch
from .norm_matvec_swiglu import cases, gated_by
from .reference import gelu

KERNEL = Kernel("norm_matvec_geglu", launch, gated_by(gelu), cases)
