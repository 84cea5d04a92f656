"""Plans of models with experts in every form through the NumPy references, on golden models."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import golden
from test_plans import N_CTX, Arrays

from kompute_llm.engine.container import open_model
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.rope import rope_table
from kompute_llm.engine.spec import model_spec

MODELS = ("deepseek2-v3.F16", "glm-dsa.F16", "qwen3moe.Q4_K_M")


@pytest.mark.parametrize("name", MODELS)
def test_batches_on_matrix_cores(name: str) -> None:
    """Logits of a prompt; float16 may move a choice of experts that is nearly even."""
    folder = golden()
    if folder is None:
        pytest.skip("the golden models are not beside this repository")
    c = open_model(folder / "models" / f"{name}.gguf")
    ref, spec = dict(np.load(folder / "models" / f"{name}.npz")), model_spec(c)
    opts = PlanOptions(N_CTX, 64, products="f16", coop_attention=True)
    plan, arrays = Forward(c, spec, opts).score(), Arrays()
    kernels = {d.kernel.name for d in plan.dispatches}
    assert "experts_matmul_coop_swiglu" in kernels and "experts_gate" not in kernels
    assert ("mla_prefill_coop" in kernels) == bool(spec.mla)
    for i, table in enumerate(spec.ropes):
        arrays[f"rope.{i}"] = rope_table(table, N_CTX)
    ids, want = [int(t) for t in ref["prompt_1"]], ref["ref_logits_1"]
    arrays.run(plan, ids, 0)
    got = arrays["all_logits"][: len(ids)]
    errors = np.square(got - want).sum(axis=1) / np.square(want).sum(axis=1)
    assert np.median(errors) <= 1e-4
