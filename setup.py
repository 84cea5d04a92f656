"""Build steps that pyproject.toml cannot say: SPIR-V from GLSL, and the C extension."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, PlatformError

ROOT = Path(__file__).resolve().parent
# Folder of the bare namespace package, which holds no module but the extension: an editable
# install builds it there. It has to exist when setuptools looks at the packages.
NAMESPACE = ROOT / "build" / "namespace"
LAYER = "engine/layer.c"

# What each header needs on the common distributions, by package manager.
HEADERS = {
    "Python.h": "apt: python3-dev, dnf: python3-devel, pacman: python",
    "vulkan/vulkan.h": "apt: libvulkan-dev, dnf: vulkan-headers, pacman: vulkan-headers",
    "vulkan/vk_layer.h": "apt: libvulkan-dev, dnf: vulkan-headers, pacman: vulkan-headers",
}


def _shader_compiler() -> ModuleType:
    """shaders/compile.py by its path: the package itself is not installed yet."""
    spec = importlib.util.spec_from_file_location("compile_shaders", ROOT / "shaders/compile.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class BuildPy(build_py):
    """Compiles the shaders first, so that they are there when package data is collected."""

    def run(self) -> None:
        shaders = _shader_compiler()
        try:
            compiled, removed = shaders.compile_all()
        except shaders.CompileError as error:
            raise PlatformError(f"shaders do not compile:\n{error}") from None
        print(f"shaders: {compiled} compiled, {removed} removed")
        super().run()


class BuildExt(build_ext):
    """Names the missing package before the C compiler prints a page about it."""

    def build_extension(self, ext: Extension) -> None:
        for header, packages in HEADERS.items():
            self._require(header, packages, ext.include_dirs)
        super().build_extension(ext)

    def _require(self, header: str, packages: str, include: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.c")
            # vk_layer.h expects to follow vulkan.h.
            first = "#include <vulkan/vulkan.h>\n" if header.endswith("vk_layer.h") else ""
            probe.write_text(f"{first}#include <{header}>\n")
            try:
                self.compiler.compile([str(probe)], output_dir=folder, include_dirs=include)
            except CompileError:
                raise PlatformError(
                    f"no C compiler, or no <{header}>: install a C compiler and {packages}"
                ) from None


def _extensions() -> list[Extension]:
    if not (ROOT / LAYER).is_file():
        return []
    return [
        Extension(
            "kompute_llm._layer",
            [LAYER],
            extra_compile_args=["-O2", "-g0", "-std=gnu11", "-Wall", "-Wextra"],
            libraries=["dl", "pthread"],
        )
    ]


NAMESPACE.mkdir(parents=True, exist_ok=True)
setup(cmdclass={"build_py": BuildPy, "build_ext": BuildExt}, ext_modules=_extensions())
