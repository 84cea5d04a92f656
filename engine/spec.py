"""The spec of a file: its family reads the keys, then all tensors are held against it."""

from __future__ import annotations

from .checks import check_tensors
from .container import Container
from .errors import ModelError
from .families import FAMILIES
from .keys import Keys
from .rope import RopeSpec
from .spec_model import LayerSpec, ModelSpec

__all__ = ["LayerSpec", "ModelSpec", "RopeSpec", "model_spec"]


def model_spec(c: Container) -> ModelSpec:
    """Validate metadata and tensor table of a container. Raises ModelError naming what is wrong."""
    top = Keys(c, "")
    arch = top.text("general.architecture")
    if arch not in FAMILIES:
        raise top.fail(
            "general.architecture",
            f"architecture {arch!r} is not supported; supported: {', '.join(FAMILIES)}",
        )
    if top.text("general.type", "model") == "adapter":
        raise top.fail("general.type", "the file is a LoRA adapter, not a model")
    if not c.tensors:
        raise ModelError(c.path, "holds no tensors: a vocabulary without a model")
    spec = FAMILIES[arch].spec(c, Keys(c, f"{arch}."))
    check_tensors(c, spec, FAMILIES[arch].shapes(spec))
    return spec
