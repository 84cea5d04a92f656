"""`bench --config`: what to measure from a TOML file, strictly: an unknown key is an error.

A key is a long option of `bench` with "_" for "-"; its value is what the option takes, a list
where the option may be repeated. `tests` lists tests, `models` paths ("demo" is the demo model,
"synthetic:NAME" a random one of the table [synthetic.NAME] or of bench_configs/synthetic.toml).
Options on the command line replace what the file says.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..engine.errors import FileError, UsageError
from .options import choose_model

FOLDER = Path(__file__).resolve().parent.parent / "bench_configs"
TEXT_KEYS = ("description",)
MODELS = "synthetic"  # a table of random models, by name
RENAMED = {"models": "model"}  # keys that are plural, for options that are not
NOT_FOR_FILES = ("config", "list_configs", "help", "roof", "verbose", "args", "export", "env")


def shipped() -> dict[str, Path]:
    """The files that come with the program, by name."""
    return {p.stem: p for p in sorted(FOLDER.glob("*.toml")) if p.stem != MODELS}


def find(name: str) -> Path:
    """A path, or the name of a shipped file. FileError names what there is."""
    path = Path(name).expanduser()
    if path.suffix == ".toml" or path.exists():
        return path
    known = shipped()
    if name not in known:
        raise FileError(f"--config {name}: no such file, and the shipped ones are: "
                        f"{', '.join(known) or 'none'}")  # fmt: skip
    return known[name]


def read(path: Path) -> dict[str, Any]:
    """The table of a file. Raises FileError for what is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise FileError(f"{path}: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise FileError(f"{path}: {e}") from e


def load_config(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Callback of --config: the file's values become the defaults of the other options."""
    if value is None:
        return None
    path = find(value)
    ctx.default_map = defaults(path, read(path), ctx.command)
    return value


def defaults(path: Path, table: Mapping[str, Any], command: click.Command) -> dict[str, Any]:
    """Defaults by parameter name. FileError names a key that no option has, or a wrong type."""
    options = {
        p.name: p for p in command.params
        if isinstance(p, click.Option) and p.name not in NOT_FOR_FILES
    }  # fmt: skip
    plain = [str(n) for n in options if n not in RENAMED.values()]
    keys = [*TEXT_KEYS, "tests", *RENAMED, MODELS, *plain]
    out: dict[str, Any] = {}
    for key, value in table.items():
        if key not in keys:
            close = difflib.get_close_matches(key, keys, 1, 0.5)
            hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(keys)}"
            raise FileError(f"{path}: unknown key '{key}'{hint}")
        if key in TEXT_KEYS:
            continue
        if key == MODELS:
            if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
                raise FileError(f"{path}: {key} must hold tables, [synthetic.NAME]")
            check_shapes(path, value)
            out[key] = value
            continue
        if key == "tests":
            out["tests"] = words(path, key, value)
            check_tests(path, out["tests"])
            continue
        option = options[RENAMED.get(key, key)]
        out[str(option.name)] = checked(path, key, value, option)
    if "model" in out:
        out["model"] = [str(choose_model(None)) if m == "demo" else m for m in out["model"]]
    return out


def checked(path: Path, key: str, value: Any, option: click.Option) -> Any:
    """A value as the command line would give it."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise FileError(f"{path}: {key} must be true or false, it is {value!r}")
        return value
    if option.multiple or key == "record":
        found = words(path, key, value)
        found = found if option.multiple else [",".join(found)]
        for word in found:
            convertible(path, key, word, option)
        return found if option.multiple else found[0]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise FileError(f"{path}: {key} must be one value, it is {value!r}")
    convertible(path, key, str(value), option)  # as text, for click would take 2.5 for 2
    return str(value)


def convertible(path: Path, key: str, text: str, option: click.Option) -> None:
    """FileError for what the option does not take."""
    try:
        option.type.convert(text, option, None)
    except click.BadParameter as e:
        raise FileError(f"{path}: {key}: {e.message}") from e


def check_tests(path: Path, tests: Sequence[str]) -> None:
    """FileError for a name that is no test."""
    from ..engine.bench_tests import parse_tests

    try:
        parse_tests(tests)
    except UsageError as e:
        raise FileError(f"{path}: {e}") from e


def check_shapes(path: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """FileError for a key of a random model that is wrong, also of one that is not measured."""
    from ..engine.synthetic_shape import Shape

    for name, table in tables.items():
        try:
            Shape.of(name, table)
        except UsageError as e:
            raise FileError(f"{path}: {e}") from e


def words(path: Path, key: str, value: Any) -> list[str]:
    """A list of strings and numbers, or one of them."""
    items = value if isinstance(value, list) else [value]
    if not items or any(isinstance(i, bool) or not isinstance(i, str | int) for i in items):
        raise FileError(f"{path}: {key} must be a list of names or numbers, it is {value!r}")
    return [str(i) for i in items]


def show_configs(names: Sequence[str]) -> str:
    """The shipped files with their descriptions, one a line."""
    wide = max(map(len, names), default=0)
    return "\n".join(
        f"{name:<{wide}}  {read(path).get('description', '')}" for name, path in shipped().items()
    )
