"""Counts tokens as OpenAI's o200k does, with tiktoken and without the network.

`o200k.xz` is `o200k_base.tiktoken` of tiktoken (MIT, see o200k.LICENSE), packed to 0.8 MB: the length of each token, one
byte each, then the tokens themselves, in the order of their ranks. Other makers' tokenisers are not public.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import tiktoken

TOKENS = 199_998
_WORD_START = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join(
    (
        f"{_WORD_START}{_UPPER}*{_LOWER}+{_ENDING}",
        f"{_WORD_START}{_UPPER}+{_LOWER}*{_ENDING}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def ranks() -> dict[bytes, int]:
    data = lzma.decompress(Path(__file__).with_suffix(".xz").read_bytes())
    table: dict[bytes, int] = {}
    at = TOKENS
    for rank, size in enumerate(data[:TOKENS]):
        table[data[at : at + size]] = rank
        at += size
    return table


@cache
def encoding() -> tiktoken.Encoding:
    return tiktoken.Encoding("o200k_base", pat_str=PATTERN, mergeable_ranks=ranks(), special_tokens={})


@cache
def tokens(text: str) -> int:
    """Counted once for each text: a conversation sends most of it again and again."""
    return len(encoding().encode_ordinary(text))
