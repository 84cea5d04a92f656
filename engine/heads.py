"""What families do to heads besides rotating them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HeadOps:
    """What happens to heads between projection and rotation.

    `bias`: a vector for all of q, k and v, or one for each. `q_norm`, `k_norm`: gains of a norm
    per head, or over all heads (`over_all`). `v_norm`: values are normalised too, without a gain.
    """

    bias: tuple[str, ...] = ()
    q_norm: str = ""
    k_norm: str = ""
    over_all: bool = False
    v_norm: bool = False


PLAIN = HeadOps()
