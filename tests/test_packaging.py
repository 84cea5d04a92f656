"""The shader build, and what the sdist and the wheel hold."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers import ROOT

from kompute_llm.kernels import kernel
from kompute_llm.shaders import compile as shaders

SOURCES = sorted((ROOT / "shaders").glob("*.comp"))
LEFT_OUT = shutil.ignore_patterns(
    ".*_cache", ".cache", ".git", ".venv", "*.egg-info", "*.so", "*.spv", "__pycache__", "build",
    "dist", "wheels",
)
SHADER = """#version 450
#extension GL_GOOGLE_include_directive : require
// build: [A|B]
#include "value.glsl"
layout(local_size_x_id = 0) in;
layout(std430, set = 0, binding = 0) writeonly buffer Out { float y[]; };
void main() { y[gl_GlobalInvocationID.x] = VALUE; }
"""


@pytest.fixture(scope="module")
def compiler() -> shaders.Compiler:
    try:
        return shaders.find_compiler()
    except shaders.CompileError as error:
        pytest.skip(str(error))


@pytest.fixture
def folder(tmp_path: Path, compiler: shaders.Compiler) -> Path:
    """A folder with one shader of two builds, which includes one file."""
    (tmp_path / "one.comp").write_text(SHADER)
    (tmp_path / "value.glsl").write_text("#define VALUE 1.0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("", ("",)),
        ("// build: [F16|F32] [SG0|SG1]", ("F16.SG0", "F16.SG1", "F32.SG0", "F32.SG1")),
        ("// build: [Q4_K]", ("Q4_K",)),
        ("// build: [A|B] [C] [D|E]", ("A.C.D", "A.C.E", "B.C.D", "B.C.E")),
    ],
)
def test_build_line(line: str, names: tuple[str, ...]) -> None:
    source = f"#version 450\n{line}\nvoid main() {{}}\n"
    assert shaders.build_names(source) == kernel.build_names(source) == names


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_both_readers_of_the_build_line_agree(source: Path) -> None:
    text = source.read_text()
    assert shaders.build_names(text) == kernel.build_names(text)


def test_compiled_shaders_are_up_to_date(compiler: shaders.Compiler) -> None:
    old = [job.output.name for job in shaders.stale(compiler)]
    assert not old, "run `make shaders`"


def test_compiled_shaders_are_valid(compiler: shaders.Compiler) -> None:
    program = Path(compiler.program).with_name("spirv-val")
    if not program.is_file():
        pytest.skip("no spirv-val beside glslang")
    for job in shaders.jobs():
        subprocess.run(
            [program, "--target-env", "vulkan1.2", job.output], env=compiler.env, check=True
        )


def test_only_what_changed_is_compiled(folder: Path) -> None:
    index = folder / "index.json"
    assert shaders.compile_all(folder, index) == (2, 0)
    assert shaders.compile_all(folder, index) == (0, 0)
    (folder / "one.A.spv").write_bytes(b"")  # an output that someone else wrote
    assert shaders.compile_all(folder, index) == (1, 0)
    (folder / "value.glsl").write_text("#define VALUE 2.0\n")
    assert shaders.compile_all(folder, index) == (2, 0)
    (folder / "one.comp").write_text(SHADER.replace("[A|B]", "[B|C]"))
    assert shaders.compile_all(folder, index) == (2, 1)
    assert sorted(p.name for p in folder.glob("*.spv")) == ["one.B.spv", "one.C.spv"]


def test_macros_name_the_build(folder: Path) -> None:
    (folder / "value.glsl").write_text("#if A\n#define VALUE 1.0\n#else\n#define VALUE 2.0\n#endif")
    shaders.compile_all(folder, folder / "index.json")
    assert (folder / "one.A.spv").read_bytes() != (folder / "one.B.spv").read_bytes()


def test_an_error_names_file_and_line_once(folder: Path) -> None:
    index = folder / "index.json"
    shaders.compile_all(folder, index)
    (folder / "value.glsl").write_text("// a comment\n#define VALUE missing\nfloat broken = ;\n")
    with pytest.raises(shaders.CompileError) as caught:
        shaders.compile_all(folder, index)
    text = str(caught.value)
    assert re.search(r"value\.glsl:3: error: .*\n    in one\.A\.spv, one\.B\.spv", text)
    assert text.count("value.glsl:3") == 1
    # An output older than its source must not be run by mistake.
    assert not list(folder.glob("*.spv"))


def test_commands_are_installed() -> None:
    entries = importlib.metadata.distribution("kompute-llm").entry_points
    assert {e.name for e in entries if e.group == "console_scripts"} == {"kompute-llm", "tool"}
    for entry in entries:
        assert callable(entry.load())


def _build(command: str, source: Path, out: Path) -> Path:
    """Run one hook of the build backend, as pip does, and return the file that it made."""
    code = f"from setuptools import build_meta as b; print(b.{command}(r'{out}'))"
    env = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=source, env=env, capture_output=True, text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return out / answer.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, compiler: shaders.Compiler) -> Path:
    """A wheel built from an sdist built from a copy of the tree without anything compiled."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT, folder / "clone", ignore=LEFT_OUT)
    sdist = _build("build_sdist", folder / "clone", folder)
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not before 3.11.4
        archive.extractall(folder)
    assert not [n for n in names if n.endswith((".spv", ".so", ".pyc"))]
    source = folder / sdist.name.removesuffix(".tar.gz")
    # Lend it the outputs that are already there, so that only what differs is compiled again.
    for job in shaders.jobs():
        if job.output.is_file():
            shutil.copy2(job.output, source / "shaders")
    (source / "build").mkdir()
    if shaders.INDEX.is_file():
        shutil.copy2(shaders.INDEX, source / "build")
    return _build("build_wheel", source, folder)


def test_wheel_has_one_namespace_and_every_shader(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(n for n in names if n.endswith("/entry_points.txt"))
        entries = archive.read(info).decode()
    top = {name.split("/")[0] for name in names}
    assert top == {"kompute_llm", info.split("/")[0]}
    shipped = {n.split("/")[-1] for n in names if n.startswith("kompute_llm/shaders/")}
    assert {job.output.name for job in shaders.jobs()} <= shipped
    assert not [n for n in names if n.endswith((".c", ".o", ".pyc"))]
    modules = {f"kompute_llm/{p.relative_to(ROOT)}"
               for folder in ("cli", "engine", "kernels", "shaders")
               for p in (ROOT / folder).rglob("*.py")}
    assert modules <= set(names), "a package is missing in pyproject.toml"
    configs = {f"kompute_llm/bench_configs/{p.name}" for p in (ROOT / "bench_configs").iterdir()
               if p.suffix == ".toml"}
    assert configs and configs <= set(names)
    assert "kompute-llm = kompute_llm.cli.entry:main" in entries
    assert "tool = kompute_llm.cli.entry:main" in entries


def test_wheel_imports_and_runs(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = ("import sys; sys.path.insert(0, sys.argv.pop()); sys.argv.append('--help')\n"
            "import kompute_llm._layer as layer; print(layer.__file__, flush=True)\n"
            "from kompute_llm.cli.main import main; main()")
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path)], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(str(tmp_path))
    assert "Usage" in answer.stdout
