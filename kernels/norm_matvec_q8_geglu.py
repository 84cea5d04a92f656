"""norm_matvec_q8_geglu: as norm_matvec_q8_swiglu, gelu(gate) * up in int8 groups of 16."""

from __future__ import annotations

from . import q8
from .kernel import Kernel
from .norm_matvec_q8_swiglu import cases, gated_by, launch
from .reference import gelu

KERNEL = Kernel("norm_matvec_q8_geglu", launch, gated_by(gelu), cases, needs=q8.needs)
