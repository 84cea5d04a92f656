"""Work counted from plans against sums by hand; floors; the table of `--profile`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from fixtures import write_tiny
from helpers import golden

from kompute_llm.cli.profile_table import Phases, phase_table, verdict
from kompute_llm.engine.container import open_model
from kompute_llm.engine.forward import Forward, PlanOptions
from kompute_llm.engine.plan import Plan
from kompute_llm.engine.profile import Profile
from kompute_llm.engine.roof_store import Roof, load_roof, save_roof
from kompute_llm.engine.spec import ModelSpec, model_spec
from kompute_llm.engine.work import DOT, FMA, MATRIX, Work, plan_work, unit

ROOF = Roof("GPU", "driver", read=1e9, copy=2e9, fma=1e10, dot=4e10, matrix=0.0, launch=1e-6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Forward, ModelSpec]:
    path = write_tiny(tmp_path_factory.mktemp("work") / "tiny.gguf")
    container = open_model(path)
    spec = model_spec(container)
    return Forward(container, spec, PlanOptions(64, 16)), spec


def total(plan: Plan, n: int, pos: int) -> Work:
    """All phases together."""
    out = Work()
    for work in plan_work(plan, n, pos).values():
        out.add(work)
    return out


def test_decode_moves_every_weight_once(tiny: tuple[Forward, ModelSpec]) -> None:
    forward, s = tiny
    plan = forward.decode()
    work = plan_work(plan, 1, 5)
    assert sum(w.dispatches for w in work.values()) == len(plan.dispatches)
    q, kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    layers = s.n_layer * (s.n_embd * (q + 2 * kv) + q * s.n_embd + 3 * s.n_embd * s.n_ff)
    products = 2.0 * (layers + s.n_embd * s.n_vocab)
    attention = 4.0 * s.n_layer * q * 6  # positions 0 … 5
    assert total(plan, 1, 5).all_ops == products + attention
    weights = sum(
        m.raw.nbytes for w in forward.weights.all for m in w.parts if w.name != "token_embd.weight"
    )  # of the embedding, one row
    moved = total(plan, 1, 5).bytes
    cache = s.n_layer * 2 * kv * 2 * (6 + 1)  # float16: six rows read, one written
    assert weights + cache < moved < weights + cache + 200_000


def test_work_grows_with_position_and_batch(tiny: tuple[Forward, ModelSpec]) -> None:
    forward, s = tiny
    decode, batch = forward.decode(), forward.prefill(16, head=True)
    row = 2 * s.n_layer * s.n_head_kv * s.head_dim * 2
    assert total(decode, 1, 15).bytes - total(decode, 1, 5).bytes == 10 * row
    one, many = total(batch, 1, 0), total(batch, 16, 0)
    head = 2.0 * s.n_embd * s.n_vocab  # of the last token only
    seen = 4.0 * s.n_layer * s.n_head * s.head_dim
    assert many.all_ops - head - seen * 16 * 17 / 2 == 16 * (one.all_ops - head - seen)
    assert many.bytes < 16 * one.bytes


def test_units() -> None:
    assert unit("matmul_coop_add") == unit("attention_prefill_coop") == MATRIX
    assert unit("matvec_q8_add") == unit("matmul_int8") == DOT
    assert unit("matvec") == unit("attention_q8") == FMA


def test_profile_joins_steps(tiny: tuple[Forward, ModelSpec]) -> None:
    """The middle step stands for all: exact, as work grows evenly."""
    plan = tiny[0].decode()
    p = Profile()
    p.did(plan, 1, 0)  # not on
    p.start(True)
    for pos in (3, 4, 5):
        p.did(plan, 1, pos)
    p.took({"ffn": 1.0, "head": 0.5}, 2.0)
    each = [total(plan, 1, pos).bytes for pos in (3, 4, 5)]
    assert sum(w.bytes for w in p.work().values()) == pytest.approx(sum(each))
    assert dict(p.seconds) == {"ffn": 1.0, "head": 0.5, "host": 0.5}
    p.start(True)
    assert not p.work() and not p.seconds


def test_floor() -> None:
    """The slower of memory and arithmetic, and the launches; a missing unit is float32's."""
    assert ROOF.floor(Work(1e9, {}, 0)) == 1.0
    assert ROOF.floor(Work(1e9, {FMA: 4e10}, 0)) == 4.0
    assert ROOF.floor(Work(0.0, {DOT: 4e10, MATRIX: 1e10}, 0)) == 2.0
    assert ROOF.floor(Work(0.0, {}, 1000)) == pytest.approx(1e-3)


def test_roof_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "roof.json"
    assert load_roof(path) is None
    assert save_roof(path, ROOF)
    assert load_roof(path) == ROOF
    for text in ("", "[]", '{"read": 1}', path.read_text().replace('"version": 1', '"version": 0'),
                 path.read_text().replace("1000000000.0", "NaN")):  # fmt: skip
        path.write_text(text)
        assert load_roof(path) is None
    assert not save_roof(Path("/proc/no/roof.json"), ROOF)


def test_table() -> None:
    seconds = {"ffn": 2.0, "head": 1.0, "host": 0.1}
    work = {"ffn": Work(1e9, {FMA: 1e9}, 10), "head": Work(0.9e9, {}, 1)}
    out = io.StringIO()
    phase_table(Phases(3.202, seconds, work, ROOF), out)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines[0] == ["phase", "ms", "%", "GB/s", "GFLOP/s", "floor", "ms", "%", "of", "roof"]
    assert lines[1] == ["ffn", "2000.00", "62.5", "0.5", "0.50", "1000.01", "50"]
    assert lines[3] == ["host", "202.00", "6.3"]
    assert lines[4][:4] == ["total", "3202.00", "100.0", "0.6"]
    assert out.getvalue().splitlines()[-1].startswith("ffn loses most: 999.99 of its 2000.00 ms")
    assert "bench --roof" in verdict(Phases(3.202, seconds, work, None))
    assert "on the host" in verdict(Phases(9.0, seconds, work, ROOF))
    fast = {"ffn": 0.5, "head": 0.5}
    assert "no phase is above" in verdict(Phases(1.0, fast, work, ROOF))
    mixed = verdict(Phases(2.6, {"ffn": 2.0, "head": 0.5}, work, ROOF))
    assert mixed.startswith("ffn loses most") and "above 100 %" in mixed
    assert np.isfinite(Phases(1.0, fast, work, ROOF).as_json()["host_s"])


def test_experts_and_latent_attention() -> None:
    """deepseek2: a token multiplies with its experts only, and sees latent rows with every head."""
    folder = golden()
    if folder is None or not (folder / "models" / "deepseek2.F16.gguf").is_file():
        pytest.skip("../shared/golden is not there")
    container = open_model(folder / "models" / "deepseek2.F16.gguf")
    spec = model_spec(container)
    forward = Forward(container, spec, PlanOptions(64, 16))
    decode, batch = forward.decode(), forward.prefill(16)
    experts = plan_work(decode, 1, 0)["experts"].all_ops
    # two layers; gate, up and down of 32 x 64 values of 5 of 7 experts (2 of them shared)
    assert experts == pytest.approx(2 * 2 * 3 * 32 * 64 * 5)
    of_batch = plan_work(batch, 16, 0)  # there the shared ones have a phase of their own
    found = of_batch["experts"].all_ops + of_batch["shared expert"].all_ops
    assert found == pytest.approx(16 * experts)
    cores = [plan_work(decode, 1, pos)["attention core"].all_ops for pos in (9, 10, 11)]
    assert cores[1] - cores[0] == cores[2] - cores[1] > 0
    container.close()
