"""The names of tests, llama-bench's: pp512, tg128, pp512+tg128, tg128@d4096, lists and ranges.

ppN processes a prompt of N tokens, tgN generates N tokens one after the other, both in turn with
"+"; @dN fills the context with N tokens before the clock starts. A list goes on with bare numbers
("pp1,2,4"), a range is first-last, first-last+step or first-last*factor ("pp1-512*2").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .errors import UsageError

LARGEST = 1 << 24  # tokens of one test
MANY = 10_000  # tests that one range may stand for
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?:([+*x])(\d+))?)?", re.ASCII)
_NUMBERS = r"\d+(?:-\d+(?:[+*x]\d+)?)?"
_TEST = re.compile(
    rf"(?:pp({_NUMBERS})(\+tg({_NUMBERS}))?|tg({_NUMBERS}))(?:@d?({_NUMBERS}))?", re.ASCII
)
_START = re.compile(r"(pp|tg)\d", re.ASCII)


@dataclass(frozen=True)
class Test:
    """One thing to time: tokens of the prompt, tokens generated, tokens in the cache before."""

    __test__ = False  # not a pytest class
    prompt: int
    gen: int
    depth: int = 0

    @property
    def name(self) -> str:
        """As on the command line: "pp512", "pp512+tg128", "tg128@d4096"."""
        parts = [f"pp{self.prompt}"] * bool(self.prompt) + [f"tg{self.gen}"] * bool(self.gen)
        return "+".join(parts) + (f"@d{self.depth}" if self.depth else "")

    @property
    def tokens(self) -> int:
        """Tokens that are timed."""
        return self.prompt + self.gen

    @property
    def positions(self) -> int:
        """Context that it needs; generation alone starts after one token at least."""
        return max(self.depth, int(not self.prompt)) + self.prompt + self.gen


def looks_like_test(text: str) -> bool:
    """Whether an argument was meant as a test (and not as a model's path)."""
    return _START.match(text) is not None and "/" not in text and ".gguf" not in text


def parse_numbers(text: str, what: str) -> list[int]:
    """Numbers of a list of ranges: "512,1024", "1-8", "0-4096+1024", "1-512*2" (x for *)."""
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise UsageError(
                f"{what}: {part!r} is no number or range (512, 1-8, 0-4096+1024 or 1-512*2)"
            )
        found += _range(match, f"{what} {part}")
    return found


def _range(match: re.Match[str], what: str) -> list[int]:
    """The numbers of one range. UsageError when it is empty or never ends."""
    first = int(match[1])
    last, step = int(match[2] or first), int(match[4] or 1)
    times = match[3] in ("*", "x")
    if last < first or step < 1 + times or (times and not first and last):
        raise UsageError(f"{what}: the range holds nothing, or never ends")
    if last > LARGEST:
        raise UsageError(f"{what}: at most {LARGEST} tokens")
    out: list[int] = []
    while first <= last:
        out.append(first)
        first = first * step if times and match[2] else first + step
        if len(out) > MANY:
            raise UsageError(f"{what}: more than {MANY} tests")
    return out


def parse_tests(texts: Sequence[str], depths: Sequence[int] = (0,)) -> list[Test]:
    """Tests of arguments such as "pp512", "tg128@d4096" or "pp1-512*2,tg128".

    Those without a depth of their own run at each of `depths`. UsageError names a bad one.
    """
    found: list[Test] = []
    for part in _complete(texts):
        match = _TEST.fullmatch(part)
        if not match:
            raise UsageError(
                f"no such test: {part!r}; expected ppN, tgN or ppN+tgN, with @dN for a depth, "
                "such as pp512, tg128 or tg128@d4096"
            )
        own = parse_numbers(match[5], part) if match[5] else depths
        prompts = parse_numbers(match[1], part) if match[1] else [0]
        gens = parse_numbers(match[3] or match[4], part) if match[3] or match[4] else [0]
        if (match[1] and 0 in prompts) or ((match[3] or match[4]) and 0 in gens):
            raise UsageError(f"no such test: {part!r}; a test has 1 token to {LARGEST}")
        found += [Test(p, g, d) for d in own for p in prompts for g in gens]
    return found


def _complete(texts: Sequence[str]) -> Iterator[str]:
    """The parts of comma lists; a bare number takes over what stands before the last one."""
    before = ""
    for text in texts:
        for part in re.sub(r"\s*@\s*", "@", text).split(","):
            match = re.match(rf"(.*(?:pp|tg|@d?)){_NUMBERS}$", part, re.ASCII)
            if match:
                before = match[1]
            elif before and _RANGE.fullmatch(part):
                part = before + part
            yield part
