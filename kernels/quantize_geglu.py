"""quantize_geglu: as quantize_swiglu, gelu(gate) * up as float16 or int8 blocks of 32."""

from __future__ import annotations

from .kernel import Kernel
from .quantize_layout import launch
from .quantize_swiglu import cases, gated_by
from .reference import gelu

KERNEL = Kernel("quantize_geglu", launch, gated_by(gelu), cases)
