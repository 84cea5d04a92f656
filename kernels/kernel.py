"""Declaration types of kernels. A kernel is one stem: `shaders/STEM.comp` and `kernels/STEM.py`.

The shader is the single place where bindings, their access and the push words are written
(macros of shaders/types.glsl); `Interface` reads them from there. The Python module adds what a
shader cannot say: how to launch it on a device, the NumPy reference and the cases that
`validate` and the tests run.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..engine.blocks import Format, Matrix
from .limits import Limits

Array = npt.NDArray[Any]
Params = Mapping[str, int | float]


class Access(enum.Enum):
    """How a shader uses a binding."""

    READ = "READS"
    WRITE = "WRITES"
    UPDATE = "UPDATES"
    WEIGHT = "WEIGHT"


@dataclass(frozen=True)
class Binding:
    """Storage buffer `name` at `index`; `type` is the GLSL element type ("uvec4" for weights)."""

    index: int
    access: Access
    type: str
    name: str


@dataclass(frozen=True)
class Interface:
    """Bindings in order, push words as (name, GLSL type), and the build names of one shader."""

    bindings: tuple[Binding, ...]
    push: tuple[tuple[str, str], ...]
    builds: tuple[str, ...]


_BINDING = re.compile(r"^(READS|WRITES|UPDATES)\((\d+), (\w+), (\w+)\)", re.M)
_WEIGHT = re.compile(r"^WEIGHT\((\d+), (\w+)\)", re.M)
_CACHE = re.compile(r"^CACHE\((\d+), (\w+)\)", re.M)
_PUSH = re.compile(r"^PUSH \{(.*?)\} p;", re.M | re.S)
_WORD = re.compile(r"(uint|int|float) (\w+);|PLANES\((\w+)\);")
_BUILD = re.compile(r"^// build: (.*)$", re.M)


def build_names(source: str) -> tuple[str, ...]:
    """The builds that `// build: [A|B] [C|D]` lines ask for: ("A.C", "A.D", ...), or ("",)."""
    names: list[str] = []
    for line in _BUILD.findall(source):
        axes = [a.split("|") for a in re.findall(r"\[([\w|]+)\]", line)]
        names += [".".join(combo) for combo in itertools.product(*axes)]
    return tuple(names) or ("",)


def parse_interface(source: str) -> Interface:
    """Read the macros of shaders/types.glsl out of the text of a .comp file."""
    found = _BINDING.findall(source.replace("SHARES(", "UPDATES("))
    bindings = [Binding(int(i), Access(a), t, n) for a, i, t, n in found]
    bindings += [Binding(int(i), Access.WEIGHT, "uvec4", n) for i, n in _WEIGHT.findall(source)]
    bindings += [Binding(int(i), Access.READ, "uvec4", n) for i, n in _CACHE.findall(source)]
    # builds may see the same binding under another element type: the first one stands for it
    first = {b.index: b for b in reversed(bindings)}
    assert sorted(first) == list(range(len(first))), "bindings must be 0, 1, 2, …"
    assert all(first[b.index].name == b.name for b in bindings), "one name per binding"
    bindings = [first[i] for i in sorted(first)]
    push: list[tuple[str, str]] = []
    block = _PUSH.search(source)
    if block:
        body = re.sub(r"//.*", "", block[1])
        for kind, name, weight in _WORD.findall(body):
            if weight:
                push += [(f"{weight}_p{i}", "uint") for i in range(4)]
            else:
                push.append((name, kind))
    return Interface(tuple(bindings), tuple(push), build_names(source))


@dataclass(frozen=True)
class Launch:
    """One way to run a kernel: compiled build, specialization constants, workgroups.

    `build` is one of the interface's build names; `spec` fills constant_id 0, 1, …;
    `subgroup_size` is required of the pipeline (with full subgroups) when not 0.
    """

    build: str
    spec: tuple[int, ...]
    grid: tuple[int, int, int]
    subgroup_size: int = 0


class Shaped(Protocol):
    """What a launch may ask about an operand: weights know their format, buffers their dtype."""

    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def format_name(self) -> str: ...  # "Q4_0", …; "F32", "F16" or "U32" for buffers


@dataclass(frozen=True)
class Case:
    """Inputs of one check. `operands` holds every binding by name: NumPy array or Matrix.

    Arrays of WRITE bindings give the shape (their content is poison); those of UPDATE bindings
    are the initial content. float16 arrays are cache buffers. `rows` is the batch the launch is
    made for. `limit` is the largest normalised mean squared error allowed; `exact` asks for
    equal words instead. Outputs in `int8` hold four signed bytes a word, compared as numbers.
    `scale` is the size that float outputs typically have: sums that cancel to much less, as the
    only row of a product can, are measured against it. `only` restricts the compared elements
    of an output (name -> mask).
    """

    name: str
    operands: Mapping[str, Array | Matrix]
    params: Params = field(default_factory=dict)
    rows: int = 1
    limit: float = 1e-10
    exact: bool = False
    only: Mapping[str, Array] = field(default_factory=dict)
    scale: float = 0.0
    int8: frozenset[str] = frozenset()


Launcher = Callable[[Mapping[str, Shaped], Params, int, Limits], Launch]
Reference = Callable[..., None]
Cases = Callable[[np.random.Generator], Iterator[Case]]


@dataclass(frozen=True)
class Kernel:
    """One kernel. `reference(**operands, **params)` writes its outputs in place (NumPy).

    `launch(operands, params, rows, limits)` chooses build, constants and grid for a batch of up
    to `rows` tokens. `needs(limits)` says whether a device can run the kernel at all.
    """

    name: str
    launch: Launcher
    reference: Reference
    cases: Cases
    needs: Callable[[Limits], bool] = lambda limits: True

    @cached_property
    def interface(self) -> Interface:
        """Bindings and push words, from the shader's source."""
        text = resources.files("kompute_llm.shaders").joinpath(f"{self.name}.comp").read_text()
        return parse_interface(text)

    def stem(self, build: str) -> str:
        """The name of the compiled shader of one build name, without its ending."""
        return f"{self.name}.{build}" if build else self.name

    def spirv(self, build: str) -> bytes:
        """The compiled shader of one build name."""
        return compiled(self.stem(build))


@lru_cache(maxsize=256)  # of 10 to 100 KB
def compiled(stem: str) -> bytes:
    """The file of a compiled shader."""
    return resources.files("kompute_llm.shaders").joinpath(f"{stem}.spv").read_bytes()


__all__ = [
    "Access", "Array", "Binding", "Case", "Format", "Interface", "Kernel", "Launch", "Limits",
    "Matrix", "Params", "Reference", "Shaped", "build_names", "parse_interface",
]
