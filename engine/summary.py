"""All of a model file in one dictionary of plain values: what `inspect` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .container import Container
from .contents import Contents, format_rows
from .errors import KomputeLLMError
from .runner import DEFAULT_CTX, RunnerConfig
from .spec import ModelSpec, model_spec


def summary(container: Container, ctx: int | None, cache_k: str, cache_v: str) -> dict[str, Any]:
    """Contents and demands. `ctx` positions: None for a default, 0 for the trained context.

    A file that cannot be run has a "problem" and no "demands".
    """
    contents = Contents(container)
    tokenizer, built = contents.tokenizer()
    spec: ModelSpec | None = None
    problem = None
    try:
        spec = model_spec(container)
    except KomputeLLMError as e:
        problem = contents.plain(e)
    return {
        "model": contents.model(),
        "problem": problem,
        "sizes": contents.sizes(),
        "tokenizer": tokenizer,
        "template": contents.template(built),
        "notes": list(spec.notes) if spec else [],
        "formats": [asdict(row) for row in format_rows(container.tensors.values())],
        **_demands(container, spec, ctx, cache_k, cache_v),
    }


def _demands(
    container: Container, spec: ModelSpec | None, ctx: int | None, cache_k: str, cache_v: str
) -> dict[str, Any]:
    """Memory by kind of device; `saved`: what caches have less than a row per position."""
    if spec is None:
        return {"ctx": ctx, "cache_k": cache_k, "cache_v": cache_v, "demands": [], "saved": 0}
    from .demand import demands

    n_ctx = min(DEFAULT_CTX, spec.n_ctx_train) if ctx is None else ctx or spec.n_ctx_train
    config = RunnerConfig(n_ctx, cache_k=cache_k, cache_v=cache_v)
    found, kinds = demands(container, spec, config), (cache_k.upper(), cache_v.upper())
    whole = sum(n_ctx * spec.kv_bytes_per_token(kind) // 2 for kind in kinds)
    return {
        "ctx": n_ctx, "cache_k": cache_k, "cache_v": cache_v,
        "saved": whole - sum(spec.kv_bytes(n_ctx, config.batch, kind) // 2 for kind in kinds),
        "demands": [asdict(d) | {"device": d.device} for d in found],
    }  # fmt: skip
