"""What dispatches have to do: bytes to move and operations to make, counted from the plan.

These are least amounts: every weight once, every key and value up to the position once per
dispatch, activations once. Divided by the roof (roof.py) they give the floor of a phase's time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..kernels.cache_rows import row_bytes
from .plan import Buf, Dispatch, Plan, Role, Weight

FMA, DOT, MATRIX = "fma", "dot", "matrix"  # units that do the products: names of rates of the roof
BYTES = {"F32": 4, "U32": 4, "F16": 2}
# Weights of which a batch reads rows that it chooses, by kernel
_LOOKUPS = ("embed", "embed_q8", "sample_pick_embed")
_WORDS = ("step", "tokens", "settings", "history", "out", "arrived")  # a few words of each


@dataclass
class Work:
    """Bytes moved, operations by unit (a multiplication and an addition are two), dispatches."""

    bytes: float = 0.0
    ops: dict[str, float] = field(default_factory=dict)
    dispatches: int = 0

    @property
    def all_ops(self) -> float:
        """Operations of all units."""
        return sum(self.ops.values())

    def add(self, other: Work, times: float = 1.0) -> None:
        """Add `times` the other's."""
        self.bytes += times * other.bytes
        self.dispatches += round(times * other.dispatches)
        for unit, ops in other.ops.items():
            self.ops[unit] = self.ops.get(unit, 0.0) + times * ops


def unit(kernel: str) -> str:
    """What a kernel multiplies with, by its name (docs/kernels.md)."""
    if "coop" in kernel:
        return MATRIX
    if "attention" in kernel or kernel == "mla_prefill":
        return FMA  # attention_q8 too: keys and values are floats
    return DOT if "q8" in kernel or "int8" in kernel else FMA


def plan_work(plan: Plan, n: int, pos: int) -> dict[str, Work]:
    """Work per `Phase.value` of one run of a plan: n tokens, the first of them at `pos`."""
    out: dict[str, Work] = {}
    slots = 1
    for d in plan.dispatches:
        slots = _slots(d) or slots
        out.setdefault(d.phase.value, Work()).add(dispatch_work(d, n, pos, slots))
    return out


def dispatch_work(d: Dispatch, n: int, pos: int, slots: int = 1) -> Work:
    """Work of one dispatch; `slots`: experts per token, where the weight is a stack of experts."""
    if d.kernel.name == "prefetch":  # what it reads is counted where it is used
        return Work(dispatches=1)
    moved = products = 0.0
    n = 1 if d.kernel.name == "sample_pick_embed" else n  # whatever the batch, the token drawn
    tokens, share = _tokens(d, n), _share(d, slots)
    for b in d.kernel.interface.bindings:
        op = d.operands[b.name]
        if isinstance(op, Weight):
            looked_up = d.kernel.name in _LOOKUPS
            # of experts a batch reads those that it is likely to choose, if all are as likely
            used = _rows(op, d)
            rows = min(n, op.rows) if looked_up else used * (1 - (1 - share) ** tokens)
            moved += rows * op.fmt.row_bytes(op.cols)
            if op.rows > 1 and not looked_up:  # one row is a norm's gain
                products += 2.0 * used * share * op.cols * tokens
        elif op.role is Role.CACHE:
            moved += _cache_rows(d, b.access.value, n, pos) * row_bytes(op.dtype, op.cols)
        else:
            per_token = slots if "start" in d.operands and b.name in ("x", "y") else 1
            moved += _activation(op, d, b.name, tokens * per_token)
    products += _attention_ops(d, n, pos)
    return Work(moved, {unit(d.kernel.name): products} if products else {}, 1)


def _slots(d: Dispatch) -> int:
    """Experts per token, where a dispatch chooses or reads them: `route` (tokens, slots, 2)."""
    route = d.operands.get("route")
    return route.shape[-2] if isinstance(route, Buf) and len(route.shape) > 1 else 0


def _rows(w: Weight, d: Dispatch) -> int:
    """Rows of a weight that a dispatch multiplies: batches take gates, then ups of one stack."""
    if "start" in d.operands and "rows" in d.params:
        both = 2 if "up" in d.params else 1
        return min(w.rows, both * int(d.params["rows"]) * int(d.params["experts"]))
    return w.rows


def _share(d: Dispatch, slots: int) -> float:
    """The part of a weight that one token uses: all, or its experts of a stack."""
    experts = int(d.params.get("experts", 0))
    start = d.operands.get("start")  # of batches in the order of their experts (experts + 1,)
    if not experts and isinstance(start, Buf):
        experts = start.rows - 1
    if isinstance(start, Buf):  # routed and shared experts are products of their own
        slots = int(d.params.get("slots", slots))
    return min(1.0, slots / experts) if experts > 0 else 1.0


def _tokens(d: Dispatch, n: int) -> int:
    """Tokens that a dispatch treats: all, or the last one where its result has one row (head)."""
    y = d.operands.get("y") or d.operands.get("logits")
    return min(n, y.rows) if isinstance(y, Buf) and len(y.shape) == 2 else n


def _seen(d: Dispatch, n: int, pos: int) -> tuple[float, float]:
    """Cache rows that n tokens see together, and the sum over the tokens."""
    window = int(d.params.get("window", 0))
    if not window:
        return pos + n, n * pos + n * (n + 1) / 2
    each = [min(pos + i + 1, window) for i in range(n)]
    return min(pos + n, window + n - 1), sum(each)


def _cache_rows(d: Dispatch, access: str, n: int, pos: int) -> float:
    """Rows of a cache that a dispatch touches: attention reads them, others write new ones."""
    return _seen(d, n, pos)[0] if access == "READS" or "scale" in d.params else n


def _attention_ops(d: Dispatch, n: int, pos: int) -> float:
    """Scores and weighted values: two operations per head, value and visible position."""
    heads = d.params.get("n_head", d.params.get("heads", 0))
    caches = [op for op in d.operands.values() if isinstance(op, Buf) and op.role is Role.CACHE]
    if not caches or not heads or "scale" not in d.params:
        return 0.0
    width = values = int(d.params.get("head_dim", 0))
    if not width:  # latent attention: all heads read the same rows, values are a part of them
        width, part = caches[0].cols, d.operands.get("part")
        y = d.operands.get("y")
        values = part.shape[-1] - 2 if isinstance(part, Buf) else width
        if not isinstance(part, Buf) and isinstance(y, Buf):
            values = y.cols // int(heads)
    return 2.0 * heads * (width + values) * _seen(d, n, pos)[1]


def _activation(op: Buf, d: Dispatch, name: str, n: int) -> float:
    """Bytes of an activation: n rows of the batch, or all of a buffer without such rows."""
    if op.name in _WORDS:
        return 0.0
    width = op.cols
    if name == "y" and "y_off" in d.params and "rows" in d.params:
        width = min(width, int(d.params["rows"]))
    batch = op.role is Role.CONSTANT or (len(op.shape) == 2 and op.role is not Role.STATE)
    return (min(n, op.rows) if batch else op.rows) * width * BYTES[op.dtype]
