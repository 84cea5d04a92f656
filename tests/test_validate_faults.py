"""Deliberate faults in shaders: `validate` must fail and name the kernel."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli import invoke
from kompute_llm.engine.device import Device
from kompute_llm.kernels.kernel import Kernel
from kompute_llm.shaders.compile import FOLDER, CompileError, Job, compile_one, find_compiler

Spoil = Callable[[str, str, str, str], None]


@pytest.fixture
def spoil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """Replaces a piece of a source file and runs the builds of one kernel from the result."""
    try:
        compiler = find_compiler()
    except CompileError as e:
        pytest.skip(str(e))

    def change(kernel: str, name: str, old: str, new: str) -> None:
        for source in (*FOLDER.glob("*.glsl"), FOLDER / f"{kernel}.comp"):
            shutil.copy(source, tmp_path)
        text = (tmp_path / name).read_text()
        assert old in text, f"{name} has changed: put the fault elsewhere"
        (tmp_path / name).write_text(text.replace(old, new))
        sound = Kernel.spirv

        def spirv(self: Kernel, build: str) -> bytes:
            if self.name != kernel:
                return sound(self, build)
            job = Job(tmp_path / f"{kernel}.comp", build)
            if not job.output.exists():
                compile_one(job, compiler)
            return job.output.read_bytes()

        monkeypatch.setattr(Kernel, "spirv", spirv)

    return change


LOW, HIGH = "q & 0x0F0F0F0Fu;", "(q >> 4) & 0x0F0F0F0Fu;"
SCALES = "return vec4(d, 0.0, {}, 0.0);\n#elif defined(Q4_1)"
# kernel, format, file, what it says there, what it says then
FAULTS = {
    "wrong scale": ("matvec", "Q4_0", "blocks.glsl", SCALES.format("d"), SCALES.format("d * 1.01")),
    "dropped tail": ("matvec", "INT4_G64", "matvec.glsl", "c < chunks; c +=",
                     "c + 1u < chunks; c +="),
    "swapped nibbles": ("matvec", "Q4_1", "blocks.glsl", f"lo = {LOW}\n    hi = {HIGH}",
                        f"hi = {LOW}\n    lo = {HIGH}"),
    "missing barrier": ("rmsnorm", "", "rmsnorm.comp", "barrier();", ""),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_faults_are_named(vulkan: Device, spoil: Spoil, what: str) -> None:
    kernel, fmt, name, old, new = FAULTS[what]
    spoil(kernel, name, old, new)
    cases = "norm/rmsnorm 2048*" if not fmt else f"product/{kernel} {fmt} 1536*"
    r = invoke("validate", "--only", cases, "--seed", 3, "--device", vulkan.info.index)
    assert r.exit_code == 1
    bad = [line for line in r.stdout.splitlines() if "FAIL" in line]
    assert any(kernel in line and fmt in line for line in bad)
    assert f": {kernel} " in r.stderr
    assert "failed: " in r.stderr
