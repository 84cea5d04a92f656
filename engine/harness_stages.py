"""Chains compared stage by stage: each dispatch's reference takes what the device gave it.

Where activations become int8 between two dispatches, a value near the middle of two quants goes
either way: by a division that is not rounded like the CPU's (Vulkan allows 2.5 units in the last
place, and float16 values that are exactly half of their group's largest lie on the middle), or by
what matrix cores round to float16 before. One such quant, a step of 1/127, then moves everything
behind it, by more than sums in float32 err. No stage is wrong then, and each of them is held to
the limit that the whole chain exceeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..kernels import cache_rows, q8
from ..kernels.kernel import Access, Array
from .harness_chain import Chain, Link, Output, initial, run_link
from .harness_errors import Errors, measure

WRITTEN = (Access.WRITE, Access.UPDATE)
Stage = tuple[Link, Errors, Errors]  # errors of floats, of int8 groups


def rounds(chain: Chain) -> bool:
    """Whether a dispatch makes int8 groups that a later one multiplies."""
    made: set[str] = set()
    for link in chain.links:
        names = {b.name: link.operand(b.name) for b in link.kernel.interface.bindings}
        if names.get("xq") in made:
            return True
        made |= {names["yq"]} if "yq" in names else set()
    return False


def stages(chain: Chain, got: Mapping[str, Array]) -> Iterator[Stage]:
    """Every dispatch in order, `got` being all operands as the device left them.

    What several dispatches write part by part is compared when the last of them has written.
    """
    values, last = initial(chain), _last_writers(chain)
    known = {o.name: o for o in chain.outputs}
    for i, link in enumerate(chain.links):
        run_link(link, values)
        floats, rounded = Errors(), Errors()
        done = [name for name in _written(link) if last[name] == i]
        for output in _outputs(link, done, known):
            want = {n: values[n] for n in (output.name, output.scales) if n}
            error = _error(output, want, got)
            if output.scales:
                rounded = rounded.worst(error)
            else:
                floats = floats.worst(error)
        for name in done:
            values[name] = got[name].copy()
        yield link, floats, rounded


def _written(link: Link) -> list[str]:
    return [link.operand(b.name) for b in link.kernel.interface.bindings if b.access in WRITTEN]


def _last_writers(chain: Chain) -> dict[str, int]:
    return {name: i for i, link in enumerate(chain.links) for name in _written(link)}


def _outputs(link: Link, names: list[str], known: Mapping[str, Output]) -> Iterator[Output]:
    """How each operand is compared: as the chain says, int8 groups by their scales, else whole."""
    quants, scales = link.operand("yq"), link.operand("ys")
    for name in names:
        if name in known:
            yield known[name]
        elif name == quants and scales in names:
            yield Output(name, scales=scales)
        elif not (name == scales and quants in names):
            yield Output(name)


def _error(output: Output, want: Mapping[str, Array], got: Mapping[str, Array]) -> Errors:
    """Of one operand. Results between two stages count where the reference wrote numbers."""
    name = output.name
    if output.scales:
        a, b = (q8.values(v[name].reshape(-1), v[output.scales].reshape(-1, 2))
                for v in (want, got))  # fmt: skip
        return measure(name, a, b)
    value = want[name]
    if output.mask is not None:
        mask = output.mask
    elif value.dtype.kind == "f":
        mask = np.isfinite(value)
    else:
        mask = np.ones(value.shape, bool)
    a, b = (cache_rows.comparable(v[name][mask]) for v in (want, got))
    return measure(name, a, b, output.exact)
