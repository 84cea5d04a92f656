"""All of a model file in one dictionary of plain values: what `inspect` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .container import Container
from .contents import Contents, format_rows
from .errors import KomputeLLMError
from .runner import RunnerConfig
from .spec import ModelSpec, model_spec

DEFAULT_CTX = 4096


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
    """Memory by kind of device."""
    if spec is None:
        return {"ctx": ctx, "cache_k": cache_k, "cache_v": cache_v, "demands": []}
    from .demand import demands

    n_ctx = min(DEFAULT_CTX, spec.n_ctx_train) if ctx is None else ctx or spec.n_ctx_train
    found = demands(container, spec, RunnerConfig(n_ctx, cache_k=cache_k, cache_v=cache_v))
    return {
        "ctx": n_ctx, "cache_k": cache_k, "cache_v": cache_v,
        "demands": [asdict(d) | {"device": d.device} for d in found],
    }  # fmt: skip
