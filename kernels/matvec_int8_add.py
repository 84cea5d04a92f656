"""matvec_int8_add: a projection of a few tokens in int8, added to the residual stream."""

from __future__ import annotations

from . import matmul_int8_add, q8
from .kernel import Kernel
from .matvec_int8 import cases, launch

KERNEL = Kernel("matvec_int8_add", launch, matmul_int8_add.reference, cases, needs=q8.needs)
