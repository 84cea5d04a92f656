"""geglu_q8: as swiglu_q8, gelu(gate) * up of one token as int8 groups of 16 (Shazeer 2020)."""

from __future__ import annotations

from .kernel import Kernel
from .reference import gelu
from .swiglu_q8 import cases, gated_by, launch

KERNEL = Kernel("geglu_q8", launch, gated_by(gelu), cases)
