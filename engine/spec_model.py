"""What a model is: sizes, layers and rotations. spec.py makes these from a file's metadata."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..kernels.cache_rows import row_bytes
from .errors import UsageError
from .rope import RopeSpec
from .spec_dsa import DsaSpec
from .spec_mla import MlaSpec
from .spec_moe import MoeSpec

RING_STEP = 64  # the rows of a ring are a multiple of this


@dataclass(frozen=True)
class LayerSpec:
    """One layer: grouped-query attention, then a feed-forward network of `n_ff` values.

    `rope` is an index into ModelSpec.ropes. `cache` is the layer whose keys and values it attends
    to: its own number, or an earlier layer's, which it then does not write.
    """

    cache: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    window: int = 0  # positions that a query sees, its own counted; 0: all
    rope: int = 0

    @property
    def q_dim(self) -> int:
        """Values of all query heads of one token."""
        return self.n_head * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Values of all key heads (and of all value heads) of one token."""
        return self.n_head_kv * self.head_dim

    @property
    def qkv_dim(self) -> int:
        """Values of all queries, keys and values of one token."""
        return self.q_dim + 2 * self.kv_dim


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only transformer. The head sizes without a layer are those of the first layer.

    `n_params` and `weight_bytes` count every tensor of the file once, as llama-bench does.
    `has` holds the names of layer tensors ("attn_q.bias") that at least one layer has.
    """

    arch: str
    name: str
    n_layer: int
    n_embd: int
    n_vocab: int  # rows of token_embd.weight, the length of the logits
    n_ctx_train: int
    eps: float
    layers: tuple[LayerSpec, ...]
    ropes: tuple[RopeSpec, ...]
    tied: bool  # the output matrix is token_embd.weight
    embed_scale: float = 1.0
    attn_scale: float = 0.0  # of scores; 0: 1 / sqrt(head_dim)
    attn_softcap: float = 0.0  # scores s become c tanh(s / c); 0: they stay
    logit_softcap: float = 0.0
    logit_scale: float = 1.0
    n_embd_layer: int = 0  # values per layer of a second embedding (gemma4)
    has: frozenset[str] = frozenset()
    tensors: frozenset[str] = frozenset()  # names of all
    moe: MoeSpec | None = None
    mla: MlaSpec | None = None
    dsa: DsaSpec | None = None
    suppressed: tuple[int, ...] = ()  # ids that are never drawn, ascending
    nextn: int = 0  # layers behind the last that predict further tokens; not used
    n_params: int = 0
    weight_bytes: int = 0
    idle_bytes: int = 0  # of tables of which a step reads a row, and of experts that it leaves out
    notes: tuple[str, ...] = ()

    @property
    def n_head(self) -> int:
        """Query heads of the first layer."""
        return self.layers[0].n_head

    @property
    def n_head_kv(self) -> int:
        """Key/value heads of the first layer."""
        return self.layers[0].n_head_kv

    @property
    def head_dim(self) -> int:
        """Values per head of the first layer."""
        return self.layers[0].head_dim

    @property
    def n_ff(self) -> int:
        """Width of the feed-forward network of the first layer."""
        return self.layers[0].n_ff

    @property
    def q_dim(self) -> int:
        """Values of all query heads of one token in the first layer."""
        return self.layers[0].q_dim

    @property
    def kv_dim(self) -> int:
        """Values of all key heads of one token in the first layer."""
        return self.layers[0].kv_dim

    @property
    def rope(self) -> RopeSpec:
        """The rotation of layers that see the whole context."""
        return self.ropes[0]

    @property
    def window(self) -> int | None:
        """The sliding window of the layers that have one, counting the current token."""
        return max(layer.window for layer in self.layers) or None

    @property
    def fused_qkv(self) -> bool:
        """Whether one tensor of a layer holds the projections of queries, keys and values."""
        return "attn_qkv.weight" in self.has and "attn_q.weight" not in self.has

    @property
    def widest(self) -> int:
        """Values of the widest activation row."""
        rows = [max(2 * layer.n_ff, layer.qkv_dim) for layer in self.layers]
        if self.moe:  # rows of all experts of a token lie in one buffer
            rows.append(self.moe.routing.slots * max(2 * self.moe.n_ff, self.n_embd))
        if self.mla:
            rows.append(self.mla.heads * self.mla.width)
        return max(self.n_embd, len(self.layers) * self.n_embd_layer, *rows)

    @property
    def caches(self) -> tuple[LayerSpec, ...]:
        """The layers with a cache of their own."""
        own = enumerate(self.layers[: self.n_layer])
        return tuple(layer for i, layer in own if layer.cache == i)

    def cache_rows(self, layer: int, n_ctx: int, batch: int) -> int:
        """Rows of the cache that a layer attends to: one per position, or fewer, used as a ring,
        where all layers that attend to it see a window only.

        A batch writes all its rows before its first token attends, which must still find the
        window - 1 positions before it.
        """
        cache = self.layers[layer].cache
        windows = [s.window for s in self.layers if s.cache == cache]
        if self.mla or 0 in windows:
            return n_ctx
        rows = max(windows) - 1 + batch
        return min(-(-rows // RING_STEP) * RING_STEP, n_ctx)

    def kv_bytes(self, n_ctx: int, batch: int, dtype: str = "F16") -> int:
        """Bytes of keys and values of a context that is filled in batches of up to `batch`."""
        if self.mla:
            return n_ctx * self.kv_bytes_per_token(dtype)
        return sum(
            2 * self.cache_rows(s.cache, n_ctx, batch) * row_bytes(dtype, s.kv_dim)
            for s in self.caches
        )

    def kv_bytes_per_token(self, dtype: str = "F16") -> int:
        """Bytes of keys and values that one token takes in all layers, while all keep it."""
        if self.mla:  # one row for both
            indexed = sum(self.dsa.full) * row_bytes(dtype, self.dsa.dim) if self.dsa else 0
            return self.n_layer * row_bytes(dtype, self.mla.width) + indexed
        return sum(2 * row_bytes(dtype, layer.kv_dim) for layer in self.caches)

    def with_expert_top_p(self, part: float) -> ModelSpec:
        """The same with experts left out once those before have that part of the weights."""
        if part == 1.0:
            return self
        if self.moe is None:
            raise UsageError(f"--expert-top-p {part:g}: the model has no experts to choose from")
        rules = replace(self.moe.routing, top_p=part)
        return replace(self, moe=replace(self.moe, routing=rules))

    def idle(self, count: int) -> ModelSpec:
        """The same with `count` bytes more that a step does not read."""
        return replace(self, idle_bytes=self.idle_bytes + count)

    def decode_bytes(self, position: int, dtype: str = "F16") -> int:
        """Bytes that one decode step must read: all weights used, and the keys and values so far
        that layers see, of caches that several layers share only once.

        Of an untied embedding only one row is read, so the table does not count.
        """
        read = self.weight_bytes - self.idle_bytes
        if self.mla:
            return read + position * self.kv_bytes_per_token(dtype)
        return read + sum(
            2 * min(position, s.window or position) * row_bytes(dtype, s.kv_dim)
            for s in self.caches
        )
