"""Plans of single tokens for several lengths of context."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import fixtures
import numpy as np
import pytest

from kompute_llm.engine.builder_base import PLAIN_LATENT, SHORT, SHORT_LATENT
from kompute_llm.engine.container import open_model
from kompute_llm.engine.device import Device
from kompute_llm.engine.products import reaches
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.vulkan import VulkanRunner


def test_plans_by_length_of_context(vulkan: Device, tmp_path: Path) -> None:
    """A plan of its own up to each reach, the general one beyond, the same tokens from all."""
    with open_model(fixtures.write_tiny(tmp_path / "m.gguf", quant="Q8_0")) as c:
        r = VulkanRunner(c, model_spec(c), vulkan, 640, math="int8")
        if not r._forward.opts.reaches:
            pytest.skip(f"{vulkan.info.name} has no forms for short contexts")
        assert r._forward.opts.reaches == (SHORT,)
        names = [r._decode_plan(n).name for n in (1, SHORT, SHORT + 1, 640)]
        assert names == [f"decode {SHORT}", f"decode {SHORT}", "decode", "decode"]
        ids = [int(t) for t in np.random.default_rng(5).integers(3, 288, SHORT - 6)]
        r.begin(Sampling(temp=0.0), [], 640)
        for start in range(0, len(ids), r.batch):
            part = ids[start : start + r.batch]
            r.prefill(part, sample=start + r.batch >= len(ids))
        r.decode(16)
        drawn, _, bad = r.poll()
        assert bad == 0
        logits = r.logits([*ids, *drawn[:-1]])[len(ids) - 1 :]
        chosen = logits[np.arange(len(drawn)), drawn]
        assert (chosen > logits.max(axis=1) - 0.05 * np.ptp(logits, axis=1)).all()


@pytest.mark.parametrize(("heads", "tiles", "latent", "want"), [
    (20, True, "head", (SHORT_LATENT, PLAIN_LATENT)), (64, True, "core", (SHORT_LATENT, SHORT)),
    (20, False, "head", (SHORT_LATENT,)), (20, True, "", (PLAIN_LATENT,)), (20, False, "", ()),
])  # fmt: skip
def test_reaches_of_latent_attention(
    heads: int, tiles: bool, latent: str, want: tuple[int, ...]
) -> None:
    """Where few heads fill matrix cores badly, they are taken later."""
    spec = SimpleNamespace(mla=SimpleNamespace(heads=heads))
    assert reaches(spec, tiles, False, latent) == want  # type: ignore[arg-type]
