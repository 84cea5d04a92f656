"""`-m synthetic:NAME`: random models, of a configuration or of bench_configs/synthetic.toml."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..engine.errors import FileError, UsageError
from ..engine.spec import model_spec
from ..engine.synthetic import PREFIX, Synthetic
from ..engine.synthetic_shape import Shape
from .bench_config import FOLDER, read
from .loading import Model, open_file
from .output import note
from .tables import size

SHIPPED = FOLDER / "synthetic.toml"


def shapes(own: Mapping[str, Any]) -> dict[str, Shape]:
    """Every known shape; `own` ones of a configuration come before shipped ones."""
    return {name: Shape.of(name, table) for name, table in (read(SHIPPED) | dict(own)).items()}


def make(name: str, own: Mapping[str, Any]) -> Synthetic:
    """The container of a shape's name. UsageError names what there is."""
    known = shapes(own)
    if name not in known:
        close = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise UsageError(f"no synthetic model {name!r}; {hint}")
    return Synthetic(name, known[name])


@contextmanager
def open_any(path: Path, own: Mapping[str, Any]) -> Iterator[Model]:
    """Open a file, or make a synthetic model."""
    if not str(path).startswith(PREFIX):
        with open_file(path) as model:
            yield model
        return
    container = make(str(path).removeprefix(PREFIX), own)
    try:
        yield Model(container, model_spec(container))
    finally:
        container.close()


def export(paths: list[Path], target: Path, own: Mapping[str, Any]) -> int:
    """Write the one synthetic model as a GGUF file."""
    if len(paths) != 1 or not str(paths[0]).startswith(PREFIX):
        raise UsageError("--export writes one synthetic model: -m synthetic:NAME")
    if target.suffix != ".gguf":
        raise UsageError(f"--export {target}: the name must end in .gguf")
    if target.exists():
        raise FileError(f"--export {target}: it is there already, and is not overwritten")
    with open_any(paths[0], own) as model:
        container = model.container
        assert isinstance(container, Synthetic)
        try:
            written = container.export(target)
        except BaseException:  # Ctrl-C too: half a model is none
            target.unlink(missing_ok=True)
            raise
        note(f"{target}: {size(written)}")
    return 0
