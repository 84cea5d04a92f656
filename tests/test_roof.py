"""Measuring the roof, with small buffers: every probe gives a rate; the command keeps it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import invoke
from kompute_llm.engine import roof, roof_cpu
from kompute_llm.engine.device import Device
from kompute_llm.engine.harness import can_run
from kompute_llm.engine.roof_store import cpu_roof_file, load_roof
from kompute_llm.kernels import roof_coop, roof_dot


def test_vulkan(vulkan: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roof, "SIZES", (1 << 20, 2 << 20))
    monkeypatch.setattr(roof, "SOFT_SIZES", (1 << 20, 2 << 20))
    monkeypatch.setattr(roof, "ROUNDS", 2)
    monkeypatch.setattr(roof, "LONG", 1e-4)
    told: list[str] = []
    found, probes = roof.measure(vulkan, told.append)
    assert found.read > 0 < found.copy and found.fma > 0
    assert (found.dot > 0) == can_run(vulkan, roof_dot.KERNEL)
    assert (found.matrix > 0) == can_run(vulkan, roof_coop.KERNEL)
    assert found.launch >= 0
    assert all(p.best > 0 for p in probes)
    assert found.read == max(p.rate for p in probes if p.name == "read 2 MiB")
    assert "fma: 2/2" in told


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(roof_cpu, "SIZES", (1 << 20, 2 << 20))
    monkeypatch.setattr(roof_cpu, "ROUNDS", 2)
    monkeypatch.setattr(roof_cpu, "SECONDS", 1e-3)
    r = invoke("bench", "--roof", "--device", "cpu", "-t", 1)
    assert r.exit_code == 0
    assert r.stdout.splitlines()[1].split() == ["probe", "best", "what"]
    found = load_roof(cpu_roof_file(1))
    assert found and found.read > 0 < found.fma and not found.matrix
    options = ("--device", "cpu", "-t", 1, "-o", "json")
    (again,) = json.loads(invoke("bench", "--roof", *options).stdout)
    assert again["device"] == found.device
    assert set(again["probes"]) == {"fma", "read 1 MiB", "copy 1 MiB", "read 2 MiB", "copy 2 MiB"}
    assert invoke("bench", "--roof", "-o", "csv").exit_code == 2
    assert invoke("bench", "--roof", "--device", "no such").exit_code == 2
