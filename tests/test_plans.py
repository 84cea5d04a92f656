"""Every form of a plan through the NumPy references: what no device here may be able to run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import golden

from kompute_llm.engine import step
from kompute_llm.engine.builder_base import SHORT
from kompute_llm.engine.container import open_model
from kompute_llm.engine.cpu_plan import array_type
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.plan import Buf, Plan, Weight
from kompute_llm.engine.rope import rope_table
from kompute_llm.engine.spec import model_spec

N_CTX = 128


class Arrays(dict[str, Any]):
    """The buffers of plans, made when first used; `run` calls the references in order."""

    def of(self, op: Buf | Weight) -> Any:
        if isinstance(op, Weight):
            return op
        if op.name not in self:
            self[op.name] = np.zeros(*array_type(op))
        return self[op.name]

    def run(self, plan: Plan, ids: list[int], pos: int) -> None:
        for d in plan.dispatches:
            operands = {name: self.of(op) for name, op in d.operands.items()}
            if d is plan.dispatches[0]:
                operands["step"][:] = 0
                operands["step"][[step.N, step.POS]] = len(ids), pos
                operands["tokens"][: len(ids)] = ids
            d.kernel.reference(**operands, **d.params)


FORMS = (("f32", False, 1e-4), ("f16", False, 1e-4), ("int8", True, 5e-3))
CASES = [(fmt, *form, "F16") for fmt in ("Q4_0", "Q4_K", "Q6_K") for form in FORMS]
CASES += [("Q4_0", products, int8, 5e-3, "Q8_0") for products, int8, _ in FORMS[1:]]


@pytest.mark.parametrize("fmt,products,int8,limit,cache", CASES)
def test_forms(fmt: str, products: str, int8: bool, limit: float, cache: str) -> None:
    """Batches and single tokens against llama.cpp's logits, with a float16 or quantized cache."""
    folder = golden()
    if folder is None:
        pytest.skip("the golden models are not beside this repository")
    c = open_model(folder / "models" / f"llama.{fmt}.gguf")
    ref = dict(np.load(folder / "models" / f"llama.{fmt}.npz"))
    spec = model_spec(c)
    opts = PlanOptions(N_CTX, 64, cache, cache, splits=2, int8=int8, products=products,
                       coop_attention=products == "f16", tiles=int8, few=8 * int8)  # fmt: skip
    forward, arrays = Forward(c, spec, opts), Arrays()
    arrays["rope.0"] = rope_table(spec.rope, N_CTX)
    ids, want = [int(t) for t in ref["prompt_2"]], ref["ref_logits_2"]
    arrays.run(forward.score(), ids, 0)
    got = arrays["all_logits"][: len(ids)]
    assert np.square(got - want).sum() <= limit * np.square(want).sum()
    arrays.run(forward.prefill(64, head=True), ids[:30], 0)
    decode = [forward.decode(reach=reach) for reach in (0, SHORT)]
    for i in range(30, len(ids)):
        arrays.run(decode[i % 2], [ids[i]], i)
    last = arrays["logits"][0]
    assert np.square(last - want[-1]).sum() <= 2 * limit * np.square(want[-1]).sum()
