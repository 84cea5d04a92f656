"""Pre-tokenizer table: how byte-level BPE models cut text into words before merging.

A GGUF file names the rule in `tokenizer.ggml.pre`. Each rule is a sequence of patterns in the
syntax of Oniguruma (what the `tokenizers` package uses); every pattern cuts the pieces that the one
before it left, and text that no pattern matches stays a piece of its own. The patterns are those of
the models' own `tokenizer.json`; names, aliases and flags follow llama.cpp's `llama-vocab.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PreTokenizer:
    """One rule. `patterns` are applied in order.

    `whole_words`: a word that is a token is taken as it is, before any merge ("ignore_merges").
    `add_bos`: BOS is added when the file has no `tokenizer.ggml.add_bos_token`.
    `byte_level`: text is mapped byte by byte to printable characters (GPT-2); else spaces become
    U+2581 and characters outside the vocabulary fall back to `<0xNN>` tokens.
    `whole_lines`: a run of line feeds that is a token is taken as it is.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    byte_level: bool = True
    whole_lines: bool = False


_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # English contractions
_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"  # runs of blanks, cut at line ends
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"  # one blank or symbol that a word takes along
_KANA_HAN = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
_HAN_HANGUL = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
_ASCII_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
_MARKED = _ASCII_WORD + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(digits: str, suffix: str = _SUFFIX + "|") -> str:
    """The pattern of the cl100k family; `digits` says how many are taken at a time."""
    return rf"{suffix}{_LEAD}\p{{L}}+|{digits}|{_SYMBOLS}|{_LINES}"


def _cased(digits: str, suffix: str = "") -> str:
    """The pattern of the o200k family: words are cut where lower case turns to upper case."""
    return (
        rf"{_LEAD}{_UPPER}*{_LOWER}+{suffix}|{_LEAD}{_UPPER}+{_LOWER}*{suffix}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}"
    )


_LLAMA3 = PreTokenizer((_words(r"\p{N}{1,3}"),), whole_words=True, add_bos=True)
_QWEN2 = PreTokenizer((_words(r"\p{N}"),))
_O200K = PreTokenizer((_cased(r"\p{N}{1,3}", _SUFFIX + "?"),))
_DEEPSEEK3 = PreTokenizer(
    (r"\p{N}{1,3}", _KANA_HAN, rf"{_MARKED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}")
)
_BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+"
_PLAIN_LINES = r"[^\n]+|\n+"
_NOT_HAN = "&&[^\\p{Han}]]"  # closes a character class: all of it but Chinese characters
_DOUBLING = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_ASIAN = (  # Chinese, Japanese, Thai, Lao, Khmer, Burmese, Korean blocks
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}"
    r"\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}"
    r"\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
)

# rule, then every name that it goes by
_RULES: tuple[tuple[PreTokenizer, str], ...] = (
    (
        _LLAMA3,
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    ),
    (_QWEN2, "qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan grok-2 solar-open stablelm2 megrez"),
    (
        PreTokenizer(
            (
                rf"{_SUFFIX}|{_LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}"
                rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES}",
            )
        ),
        "qwen35",
    ),
    (
        PreTokenizer((_GPT2,)),
        "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais modern-bert jina-es jina-de "
        "jina-v2-es jina-v2-de trillion granite-docling",
    ),
    (
        PreTokenizer((r"\p{N}", _GPT2)),
        "smollm command-r starcoder refact codeshell exaone minerva-7b mellum2",
    ),
    (PreTokenizer(_LLAMA3.patterns), "dbrx smaug-bpe chatglm-bpe"),
    (PreTokenizer(_LLAMA3.patterns, whole_words=True), "glm4 glm5"),
    (_O200K, "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (PreTokenizer((_cased(r"\p{N}"),), whole_words=True, add_bos=True), "tekken"),
    (
        PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", *_O200K.patterns)),
        "tiny_aya cohere2moe",
    ),
    (
        PreTokenizer(  # the first class: letters that have case
            (
                r"[\r\n]",
                r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
                r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
                r"\s+$",
                _HAN_HANGUL,
                r"\p{N}+",
            )
        ),
        "deepseek-llm",
    ),
    (
        PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_HANGUL, r"\p{N}")),
        "deepseek-coder",
    ),
    (_DEEPSEEK3, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (
        PreTokenizer(
            (
                r"\p{N}{1,3}",
                _KANA_HAN,
                rf"{_MARKED}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
                r"\p{N}",
            )
        ),
        "spark2_5",
    ),
    (
        PreTokenizer(
            (
                r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}"
                r"\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+"
                rf"|[\x{{3105}}-\x{{312F}}]+|{_KANA_HAN}",
                _cased(r"\p{N}", _SUFFIX + "?"),
            ),
            whole_words=True,
        ),
        "youtu",
    ),
    (
        PreTokenizer(
            (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
        ),
        "falcon",
    ),
    (
        PreTokenizer(
            (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
        ),
        "default",
    ),
    (PreTokenizer((_BLOOM,)), "poro-chat bloom gpt3-finnish"),
    (PreTokenizer((_BLOOM, r"\p{N}")), "viking"),
    (PreTokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))")), "superbpe"),
    (PreTokenizer((_BAILING,)), "bailingmoe bailingmoe2 llada-moe"),
    (
        PreTokenizer(
            (
                rf"{_SUFFIX}|{_LEAD}\p{{L}}+|\p{{N}}"
                rf"| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES}",
            )
        ),
        "seed-coder",
    ),
    (PreTokenizer((_words(r"\p{N}", ""),)), "ufakzeka"),
    (PreTokenizer((r"[^\n]+|[\n]+", *_QWEN2.patterns)), "laguna"),
    (
        PreTokenizer((r"\p{N}{1,3}", _words(r"\p{N}+")), whole_words=True),
        "minicpm5",
    ),
    (
        PreTokenizer(
            (
                rf"{_SUFFIX}|{_LEAD}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
            ),
        ),
        "exaone-moe",
    ),
    (
        PreTokenizer(
            (
                rf"{_SUFFIX}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{_SYMBOLS}|\s*[\r\n]+|{_DOUBLING}"
                r"|\s{1,2}(?!\S)|\s{1}",
            ),
        ),
        "jais-2",
    ),
    (
        PreTokenizer(  # digits in threes from the right
            (
                r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
                _ASIAN,
                rf"{_MARKED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}",
            )
        ),
        "afmoe",
    ),
    (
        PreTokenizer(
            (
                rf"\p{{Han}}+|{_LEAD}{_UPPER[:-1]}{_NOT_HAN}*{_LOWER[:-1]}{_NOT_HAN}+{_SUFFIX}?"
                rf"|{_LEAD}{_UPPER[:-1]}{_NOT_HAN}+{_LOWER[:-1]}{_NOT_HAN}*{_SUFFIX}?"
                rf"|\p{{N}}{{1,3}}|{_SYMBOLS}|{_LINES}",
            )
        ),
        "kimi-k2",
    ),
    (
        PreTokenizer(
            (
                r"<sentinel:[0-9]+>",
                r"IMGIMG[A-I]{1,4}Z",
                r"[\t\n]|    |  ",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                _GPT2,
            ),
            add_bos=True,
        ),
        "chameleon",
    ),
    (
        PreTokenizer((_PLAIN_LINES,), byte_level=False, add_bos=True, whole_lines=True),
        "gemma4",
    ),
    (PreTokenizer((_PLAIN_LINES,), byte_level=False), "sarvam-moe"),
)

PRETOKENIZERS: Mapping[str, PreTokenizer] = {
    name: rule for rule, names in _RULES for name in names.split()
}
