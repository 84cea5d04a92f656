"""A vocabulary in which every cut of a pre-tokenizer shows, and texts to cut.

All 65,536 pairs of bytes are tokens, with merges in a shuffled order: what is merged across a
place changes with any cut near it. No library's random numbers are used, so the texts stay the
same for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from vocab_source import byte_chars

TEXTS = 300
PARTS = (
    "a", "B", "\u00e9", "\u00c9", "\u00df", "\ufb01", "\u044f", "\u0416", "\u4e2d", "\u6587",
    "\u65e5", "\u304b", "\u30ab", "\ud55c", "\uae00", "\u3131", "\u0e01", "\u0e33", "\u0639",
    "\u0645", "\u096b", "\u0663", "\u00bd", "\u2167", "1", "2", "3", "45", "678", "1234567", " ",
    "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2003", "\u200b", "\u2028",
    "'s", "'S", "'LL", "'re", "\u2019s", ".", ",", "!", "?", "(", ")", "-", "_", "/", "//", "\\",
    "$", "+", "=", "<", ">", "^", "~", "|", "`", "\u3002", "\uff0c", "\uff01", "\u300c", "\u2026",
    "\u201c", "\u2014", "\u0301", "\u094d", "\U0001f1ef\U0001f1f5",
    "\U0001f469\U0001f3fd\u200d\U0001f4bb", "\u2122", "\u00b2", "a b", "x y z", "the", "The",
    "HELLO", "camelCase", "IMGIMGABZ", "<sentinel:12>", "\x00", "\x7f", "\x0b", "\u0085",
    "\u02b0", "\U0001d49c", "\U00010400", "\U00020000",
)  # fmt: skip


def numbers(seed: int) -> Iterator[int]:
    """A linear congruential sequence (Knuth's MMIX constants), its upper bits."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield seed >> 33


def pairs() -> list[tuple[str, str]]:
    """All pairs of byte characters, shuffled: the merges by rank."""
    found = [(a, b) for a in byte_chars() for b in byte_chars()]
    random = numbers(1)
    for i in range(len(found) - 1, 0, -1):
        j = next(random) % (i + 1)
        found[i], found[j] = found[j], found[i]
    return found


def texts() -> list[str]:
    """Texts of up to 13 parts; every second one is ASCII."""
    random, ascii_parts = numbers(2), [p for p in PARTS if p.isascii()]
    out = []
    for n in range(TEXTS):
        parts = ascii_parts if n % 2 else PARTS
        out.append("".join(parts[next(random) % len(parts)] for _ in range(1 + next(random) % 13)))
    return out
