"""`bench --report` and `--plot`: the page and the pictures are well formed and hold the figures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fake_runner import Script
from fixtures import write_tiny

from cli import invoke
from kompute_llm.cli import svg
from kompute_llm.cli.bench_report import curves, page
from kompute_llm.engine import choice

VOID = {"meta", "br"}


class Checked(HTMLParser):
    """Every element is closed in order; collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data + " "


def row(prompt: int, gen: int, depth: int, **more: Any) -> dict[str, Any]:
    """A result of three samples."""
    base = {"model_type": "llama <8B>", "gpu_info": "GPU & Co", "n_prompt": prompt, "n_gen": gen,
            "n_depth": depth, "samples_ns": [10_000_000, 10_100_000, 9_900_000]}  # fmt: skip
    return base | more


PROFILE = {
    "wall_s": 0.02, "host_s": 0.001,
    "phases": {"ffn": {"seconds": 0.01, "floor_s": 0.004}, "embed": {"seconds": 0.0}},
}  # fmt: skip


def test_page() -> None:
    rows = [row(512, 0, 0, profile=PROFILE), row(64, 0, 0), row(0, 8, 0), row(0, 8, 99)]
    text = page(rows)
    checked = Checked()
    checked.feed(text)
    assert not checked.open
    for words in ("llama <8B>", "GPU & Co", "tg8 @ d99", "Generation over the depth",
                  "Prompt processing over the length", "pp512: phases",
                  "10 ms (40 %)"):  # fmt: skip
        assert words in checked.words, words
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # needs nothing else
    assert "depth" not in page([row(4, 0, 0)]).split("</style>")[1]


def test_curves_are_told_apart() -> None:
    rows = [row(p, 0, 0, type_k=k) for p in (1, 2, 4) for k in ("f16", "f32")]
    ((_, picture),) = curves(rows)
    names = [t.text for t in ET.fromstring(picture).iter() if t.tag.endswith("}text")]
    assert "type_k f32" in names
    many = [row(p, 0, 0, n_threads=t, profile=PROFILE) for p in (1, 2) for t in range(1, 9)]
    ((_, picture),) = curves(many)
    assert picture.count("stroke-dasharray") == 4  # two more series than colours, and the legend
    text = page(many)
    for words in ("pp2, n_threads 8: phases", "n_threads 3</text>"):
        assert words in text


@pytest.mark.parametrize("most", [1e-9, 0.3, 1.0, 7.0, 261.0, 12800.0, 3e9])
def test_ticks(most: float) -> None:
    found = svg.ticks(most)
    assert found[0] == 0 and most <= found[-1] <= 2 * most
    assert 3 <= len(found) <= 7


def test_pictures_are_xml() -> None:
    for picture in (
        svg.lines([("a & b", [(1, 5.0), (512, 9.0)]), ("c", [(0, 1.0)])], "x", "t/s"),
        svg.bars([("ffn", 2.0, 1.0), ("<host>", 0.0, None)], "ms", "phases"),
        svg.dots([("tg8", [1.0]), ("pp8", [1.0, 2.0, 3.0])], "samples"),
    ):
        root = ET.fromstring(svg.alone(picture))
        assert root.tag.endswith("svg")
        assert "nan" not in picture and "inf" not in picture


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(ids=[1, 2, 3], step_seconds=0.0001)
    monkeypatch.setattr(choice, "open_runner", script.open)
    tiny = write_tiny(tmp_path / "tiny.gguf")
    report, plot = tmp_path / "out.html", tmp_path / "out.svg"
    r = invoke("bench", tiny, "pp1-4*2", "-r", 2, "--profile", "--report", report, "--plot", plot)
    assert r.exit_code == 0, r.stderr
    checked = Checked()
    checked.feed(report.read_text())
    assert "pp4: phases" in checked.words
    assert ET.fromstring(plot.read_text()).tag.endswith("svg")
    for code, *bad in (
        (2, "--report", "x.pdf"), (2, "--plot", "x.jpg"), (1, "--report", tmp_path / "no/x.html"),
    ):  # fmt: skip
        r = invoke("bench", tiny, "pp1", "-r", 1, *bad)
        assert r.exit_code == code
        assert "x." in r.stderr
