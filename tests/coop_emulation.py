"""The shaders for cooperative matrices on devices without: their matrices in plain GLSL.

A matrix of 16 x 16 lies in the lanes of a subgroup of 8, element i in lane i % 8. Loads, stores
and products of the real shaders are replaced in their text; all the rest of them stays as it is.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from kompute_llm.kernels.kernel import Kernel, Launch
from kompute_llm.shaders.compile import FLAGS, CompileError, find_compiler

LANES = 8
TYPES = """
struct MatA { float e[32]; }; struct MatB { float e[32]; };
struct MatC { float e[32]; }; struct MatH { float e[32]; };
#define MATRIX_A MatA
#define MATRIX_B MatB
#define MATRIX_C MatC
#define MATRIX_HALF MatH
#define CELLS(m) 32u
#define CELL(m, i) m.e[i]
// bounds that the compiler does not know keep the code small: it would unroll every loop
#define ONE gl_NumWorkGroups.z
#define EACH for (uint e = 0u; e < 32u * ONE; e++)
const int LayoutRowMajor = 0, LayoutColumnMajor = 1;
shared float factors_of[8u * 512u];
uint cell(uint e) { return e * 8u + gl_SubgroupInvocationID; }
// place of element e where a row (or column) is `stride` units of `unit` values
uint place(uint e, uint unit, uint stride, int layout_) {
    uint r = cell(e) / 16u, c = cell(e) % 16u;
    return layout_ == 0 ? r * stride * unit + c : c * stride * unit + r;
}
MatC zeros() { MatC m; EACH m.e[e] = 0.0; return m; }
MatC added(MatC a, MatC b) { EACH a.e[e] += b.e[e]; return a; }
MatC scaled(MatC a, MatC b) { EACH a.e[e] *= b.e[e]; return a; }
MatH halved(MatC a) { MatH h; EACH h.e[e] = a.e[e]; return h; }
MatC coopMatMulAdd(MatA a, MatB b, MatC c) {
    uint at = gl_SubgroupID * 512u;
    subgroup_exchange();
    EACH { factors_of[at + cell(e)] = a.e[e]; factors_of[at + 256u + cell(e)] = b.e[e]; }
    subgroup_exchange();
    EACH {
        for (uint k = 0u; k < 16u * ONE; k++)
            c.e[e] += factors_of[at + cell(e) / 16u * 16u + k]
                * factors_of[at + 256u + k * 16u + cell(e) % 16u];
    }
    subgroup_exchange();
    return c;
}
#define coopMatLoad(m, buf, o, s, l) LOAD_##buf(m, o, s, l)
#define coopMatStore(m, buf, o, s, l) STORE_##buf(m, o, s, l)
"""
SHARED = """
void LOAD_@(out MatA m, uint o, uint s, int l) {
    EACH { uint i = o * 8u + place(e, 8u, s, l);
        vec2 u = unpackHalf2x16(@[i / 8u][(i & 7u) / 2u]); m.e[e] = (i & 1u) == 0u ? u.x : u.y; } }
void LOAD_@(out MatB m, uint o, uint s, int l) {
    MatA a; LOAD_@(a, o, s, l); EACH m.e[e] = a.e[e]; }
void LOAD_@(out MatC m, uint o, uint s, int l) {
    EACH { uint i = o * 4u + place(e, 4u, s, l); m.e[e] = uintBitsToFloat(@[i / 4u][i & 3u]); } }
void STORE_@(MatC m, uint o, uint s, int l) {
    EACH { uint i = o * 4u + place(e, 4u, s, l); @[i / 4u][i & 3u] = floatBitsToUint(m.e[e]); } }
"""
FLOATS = """
void LOAD_y(out MatC m, uint o, uint s, int l) { EACH m.e[e] = y[o + place(e, 1u, s, l)]; }
void STORE_y(MatC m, uint o, uint s, int l) { EACH y[o + place(e, 1u, s, l)] = m.e[e]; }
"""
HALVES = """
void STORE_y(MatH m, uint o, uint s, int l) {
    uint at = gl_SubgroupID * 512u;
    subgroup_exchange();
    EACH { uint i = cell(e); factors_of[at + (l == 0 ? i : i % 16u * 16u + i / 16u)] = m.e[e]; }
    subgroup_exchange();
    for (uint e = 0u; e < 16u * ONE; e++) {
        uint i = cell(e) * 2u;
        y[o + i / 16u * s + i % 16u / 2u] =
            packHalf2x16(vec2(factors_of[at + i], factors_of[at + i + 1u]));
    }
    subgroup_exchange();
}
"""


def _flat(name: str) -> str:
    """A shader with its includes put in place."""
    text = resources.files("kompute_llm.shaders").joinpath(name).read_text(encoding="utf-8")
    return re.sub(r'#include "(.*)"', lambda m: _flat(m[1]), text)


def emulation(stem: str, build: str) -> str:
    """The text of a shader with plain matrices."""
    text = _flat(f"{stem}.comp")
    half = "#define GATED" in text or "HALF" in build
    result = "" if ", y)" not in text else HALVES if half else FLOATS
    text = re.sub(r"#extension GL_KHR_(cooperative_matrix|memory_scope_semantics).*\n", "", text)
    # the matrix types go, subgroup_exchange and what follows stays
    text = re.sub(r"#define MATRIX_A [\s\S]*?#define CELL\(.*\n", "", text)
    text = re.sub(
        r"(void subgroup_exchange\(\) \{[\s\S]*?\n\}\n)",
        lambda m: m[1] + TYPES + result, text,
    )  # fmt: skip
    text = re.sub(r"^WRITES\((\d), (\w+), y\)", r"UPDATES(\1, \2, y)", text, flags=re.M)
    for real, plain in (
        (r"gl_CooperativeMatrix", ""),
        (r"MATRIX_C\(0\.0\)", "zeros()"),
        (r"MATRIX_HALF\(", "halved("),
        (r"= (\w+\[\w+\]) \+ before;", r"= added(\1, before);"),
        (r"= (\w+\[\w+\]) \* shrunk;", r"= scaled(\1, shrunk);"),
        (r"= sums \+ small;", "= added(sums, small);"),
        (r"\[\[unroll\]\]", ""),  # sooner compiled; arrays may lie in memory here
    ):
        text = re.sub(real, plain, text)
    head, found, body = text.partition("#define ONE gl_NumWorkGroups.z\n")
    loops = re.compile(r"; (\w+) < ([A-Z]{2,}); \1\+\+\)")
    text = head + found + loops.sub(r"; \1 < \2 * ONE; \1++)", body)
    for name in re.findall(r"^shared uvec4 (\w+)\[", text, re.M):
        # after the array and after the functions that loads and stores of it call
        declared = text.index("\n", text.index(f"shared uvec4 {name}[")) + 1
        block = TYPES + result
        at = max(declared, text.index(block) + len(block))
        text = text[:at] + SHARED.replace("@", name) + text[at:]
    return text


@cache
def spirv(stem: str, build: str) -> bytes:
    """The emulation, compiled; a skip without a compiler."""
    try:
        compiler = find_compiler()
    except CompileError as e:
        pytest.skip(str(e))
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, f"{stem}.comp"), Path(folder, "out.spv")
        source.write_text(emulation(stem, build), encoding="utf-8")
        macros = [f"-D{name}=1" for name in build.split(".") if name]
        answer = subprocess.run(
            [compiler.program, "-V", *FLAGS, *macros, str(source), "-o", str(output)],
            env=dict(compiler.env), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not answer.returncode, answer.stdout
        return output.read_bytes()


class Emulated(Kernel):
    """A kernel whose shader is the emulation."""

    def spirv(self, build: str) -> bytes:
        """The compiled emulation of one build name."""
        return spirv(self.name, build)


def emulated(kernel: Kernel, launch: Launch) -> Emulated:
    """The kernel for a device without matrices, always launched as `launch` says."""
    fields: dict[str, Any] = {f: getattr(kernel, f) for f in ("name", "reference", "cases")}
    return Emulated(**fields, launch=lambda *shape: launch)
