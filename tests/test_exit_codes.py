"""Exit codes 1 and 2: what files cause, and what is wrong whatever files there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures import write_tiny
from test_cli_errors import file_error, usage_error


@pytest.mark.parametrize(
    "args",
    [
        ("run", "{no}", "-p", "h"), ("inspect", "{no}"), ("validate", "{no}"),
        ("bench", "pp1", "-m", "{no}"), ("bench", "{no}", "pp1"),
        ("convert", "{no}", "{folder}/out"),
        ("run", "x", "-f", "{no}"), ("bench", "{model}", "pp1", "--config", "{no}"),
        ("bench", "{model}", "pp1", "--config", "no-such-name"),
        ("bench", "{model}", "pp1", "--save", "{no}/x.json"),
        ("bench", "{model}", "pp1", "--report", "{no}/x.html"),
        ("bench", "{model}", "pp1", "--plot", "{no}/x.svg"),
        ("bench", "-m", "synthetic:tiny-q4_k", "--export", "{no}/x.gguf"),
        ("bench", "compare", "{no}", "{no}"), ("bench", "tasks", "--compare", "{no}", "{no}"),
        ("bench", "tasks", "{model}", "--set", "{no}"), ("validate", "--json", "{no}/x.json"),
        ("validate", "{model}", "--reference", "{no}", "--device", "cpu"),
        ("validate", "{model}", "--save-reference", "{no}/x.npz", "--device", "cpu"),
        ("validate", "{model}", "--perplexity", "{no}", "--device", "cpu"),
    ],
    ids=" ".join,
)
def test_missing_files_and_folders(tmp_path: Path, args: tuple[str, ...]) -> None:
    """Whatever a file is for, exit code 1; in each option the path is named."""
    no, tiny = tmp_path / "nowhere", tmp_path / "tiny.gguf"
    if "{model}" in args:
        write_tiny(tiny, n_embd=256, n_head=2)
    filled = [a.format(no=no, folder=tmp_path, model=tiny) for a in args]
    file_error(*filled, says="no-such-name" if "no-such-name" in args else str(no))


@pytest.mark.parametrize(
    "args",
    [
        ("bench", "nowhere", "pp1"), ("bench", "pp1", "--save", "{no}/x.txt"),
        ("bench", "pp1", "--report", "{no}/x.pdf"), ("bench", "compare", "{no}"),
        ("validate", "-o", "{no}/x.txt"), ("run", "{no}", "-f", "{no}", "-p", "h"),
        ("bench", "-m", "{no}", "--export", "{no}.gguf"),
    ],
    ids=" ".join,
)
def test_wrong_usage_whatever_files_there_are(tmp_path: Path, args: tuple[str, ...]) -> None:
    """What is wrong without a look at any file comes first, with exit code 2."""
    usage_error(*(a.format(no=tmp_path / "nowhere") for a in args), says="")
