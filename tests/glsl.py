"""Compiles the few lines of GLSL that device tests bring along."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from kompute_llm.shaders.compile import FLAGS, CompileError, find_compiler


@functools.cache
def spirv(body: str, buffers: str = "x", declarations: str = "") -> bytes:
    """A compute shader with `body` as main, or a skip without a compiler.

    `buffers` names the storage buffers of uint at binding 0, 1, …: "x y"; those that `body` does
    not assign to are readonly. The workgroup size is spec constant 0 (64); push words are `p.a`
    and `p.b`; `i` is the invocation's index.
    """
    lines = [
        "#version 450", declarations, "layout(local_size_x = 64, local_size_x_id = 0) in;",
        "layout(push_constant) uniform Push { uint a; uint b; } p;",
    ]  # fmt: skip
    for index, name in enumerate(buffers.split()):
        written = re.search(rf"\b{name}\[[^]]*\] *[-+*^|]?=[^=]", body)
        access = "" if written else "readonly "
        lines.append(f"layout(binding = {index}) {access}buffer B{index} {{ uint {name}[]; }};")
    lines.append(f"void main() {{ uint i = gl_GlobalInvocationID.x; {body} }}")
    try:
        compiler = find_compiler()
    except CompileError as e:
        pytest.skip(str(e))
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "t.comp"), Path(folder, "t.spv")
        source.write_text("\n".join(lines))
        subprocess.run(
            [compiler.program, "-V", *FLAGS, str(source), "-o", str(output)],
            env=dict(compiler.env), check=True,
        )  # fmt: skip
        return output.read_bytes()
