"""The embedding row of a drawn token, looked up by the dispatch that draws it.

A plan of single tokens in int8 begins with embed_q8 and ends with sample_pick. Where the latter is
sample_pick_embed, the next plan can begin with its layers: the row is there already. Every plan
that draws has to do so then, those of prompts too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels import embed_q8, sample_pick, sample_pick_embed
from .plan import Dispatch, Plan

ROW = ("w", "g", "x", "yq", "ys", "ssq")  # operands of the lookup
KERNEL = sample_pick_embed.KERNEL


def with_row(sampling: Sequence[Dispatch], decode: Plan, bindings: int) -> list[Dispatch]:
    """`sampling`, whose last dispatch also does the lookup with which `decode` begins.

    Unchanged where that is no embed_q8, or several (a matrix in several ranges), or where a
    shader may not have as many buffers: `bindings`.
    """
    pick, first = sampling[-1], decode.dispatches[0]
    lookups = sum(d.kernel is embed_q8.KERNEL for d in decode.dispatches)
    alone = first.kernel is embed_q8.KERNEL and lookups == 1
    room = len(KERNEL.interface.bindings) <= bindings
    if pick.kernel is not sample_pick.KERNEL or not alone or not room:
        return list(sampling)
    params = dict(pick.params) | {n: first.params[n] for n in ("n_embd", "scale")}
    operands = dict(pick.operands) | {n: first.operands[n] for n in ROW}
    return [*sampling[:-1], Dispatch(KERNEL, operands, params, pick.phase, KERNEL.name)]


def beyond_row(layers: Sequence[Dispatch], sampling: Sequence[Dispatch]) -> Sequence[Dispatch]:
    """`layers` of a plan of single tokens without the lookup that `sampling` does for the next
    token; all of them where it does none, or another."""
    if not sampling or sampling[-1].kernel is not KERNEL:
        return layers
    first, pick = layers[0], sampling[-1]
    same = first.kernel is embed_q8.KERNEL and all(
        first.operands[n].name == pick.operands[n].name for n in ROW
    )
    return layers[1:] if same else layers
