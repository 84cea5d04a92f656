"""Paths that tests share."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def golden() -> Path | None:
    """The folder of llama.cpp's golden data beside the repository, or None in a bare clone."""
    path = ROOT.parent / "shared" / "golden"
    return path if path.is_dir() else None
