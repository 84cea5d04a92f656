"""matmul_coop_add: a projection of a batch on matrix cores, added to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .kernel import Case, Kernel
from .matmul_add import reference
from .matmul_coop_launch import format_cases, launch
from .matvec_launch import ALL_FORMATS, PLAIN_FORMATS


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape."""
    return format_cases(rng, ALL_FORMATS + PLAIN_FORMATS)


KERNEL = Kernel("matmul_coop_add", launch, reference, cases, needs=lambda limits: limits.coopmat)
