"""geglu: as swiglu, gelu(gate) * up of a batch (Shazeer 2020)."""

from __future__ import annotations

from .kernel import Kernel
from .reference import gelu
from .swiglu import cases, gated_by, launch

KERNEL = Kernel("geglu", launch, gated_by(gelu), cases)
