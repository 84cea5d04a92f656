"""matmul_coop: every row of a batch times a weight matrix, on matrix cores in f16."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .kernel import Case, Kernel
from .matmul import reference
from .matmul_coop_launch import format_cases, launch, odd_case
from .matvec_launch import ALL_FORMATS, PLAIN_FORMATS


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every format and shape; a batch smaller than the launch; columns in the middle of y."""
    yield from format_cases(rng, ALL_FORMATS + PLAIN_FORMATS)
    yield odd_case(rng)


KERNEL = Kernel("matmul_coop", launch, reference, cases, needs=lambda limits: limits.coopmat)
