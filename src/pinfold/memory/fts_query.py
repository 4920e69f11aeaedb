"""From what somebody asks to what SQLite's full text understands. Nothing that is asked is syntax."""

from __future__ import annotations

import re

MOST = 24
"""Words of a question that count; more make it slower, not better."""
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "do",
        "does",
        "for",
        "from",
        "have",
        "how",
        "i",
        "in",
        "is",
        "it",
        "its",
        "me",
        "my",
        "of",
        "on",
        "or",
        "our",
        "that",
        "the",
        "their",
        "this",
        "to",
        "was",
        "we",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "with",
        "you",
        "your",
    ]
)


def build_query(words: str) -> str:
    """Any of the words, or of those that begin so; empty where there is none."""
    found = [word.casefold() for word in _WORD.findall(words)]
    telling = [word for word in found if word not in _COMMON] or found
    return " OR ".join(_format_word(word) for word in dict.fromkeys(telling[:MOST]))


def _format_word(word: str) -> str:
    # Of two letters, too much begins so.
    return f'"{word}"*' if len(word) > 2 else f'"{word}"'
