"""Where in a text something may begin that is a call, or that hides one. Finds, and judges nothing."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from pinfold.model.protocol.fences import OPENING, WITHIN_A_LINE

Kind: TypeAlias = Literal["quote", "fence", "tag", "object", "call"]

_QUOTES = "\"'“”‘’"  # noqa: RUF001
_QUOTE = re.compile(r"^ {0,3}+>[^\n]*+(?:\n {0,3}+>[^\n]*+)*+", re.MULTILINE)
_TAG = re.compile(
    r"<(?P<tag>tool_call|function_call|tool_use|tool)(?P<attributes>(?:[ \t=:][^<>\n]{0,200}+)?+)>", re.IGNORECASE
)
_OBJECT = re.compile(rf"(?:\[\s*+)?+\{{\s*+(?:[{_QUOTES}][^{_QUOTES}\n]{{1,64}}+[{_QUOTES}]|[A-Za-z_]\w{{0,63}}+)\s*+:")
_CALL = re.compile(
    r"^[ \t]*+`{0,2}+(?P<call>\[?+[ \t]*+(?:(?:functions|tools|default_api)\.)?+(?P<name>[A-Za-z_]\w{0,80}+)[ \t]*+\()",
    re.MULTILINE,
)
_IN_PROSE: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("quote", _QUOTE),
    ("fence", OPENING),
    ("fence", WITHIN_A_LINE),
    ("tag", _TAG),
    ("object", _OBJECT),
    ("call", _CALL),
)
_IN_BLOCK: tuple[tuple[Kind, re.Pattern[str]], ...] = (("tag", _TAG), ("object", _OBJECT), ("call", _CALL))
_THOUGHT = re.compile(r"\s*+<think(?:ing)?+>", re.IGNORECASE)
_END_OF_THOUGHT = re.compile(r"</think(?:ing)?+>", re.IGNORECASE)
_END_ALONE = re.compile(r"^[ \t]*+</think(?:ing)?+>[ \t]*+\r?+$", re.IGNORECASE | re.MULTILINE)


class Marks:
    """The marks between two places, in order. Each pattern goes over the text once."""

    def __init__(self, text: str, stop: int, where: Literal["prose", "block"]) -> None:
        self._text, self._stop = text, stop
        self._patterns = _IN_PROSE if where == "prose" else _IN_BLOCK
        self._ahead: list[re.Match[str] | None] = []

    def next(self, at: int) -> tuple[Kind, re.Match[str]] | None:
        if not self._ahead:
            self._ahead = [pattern.search(self._text, at, self._stop) for _, pattern in self._patterns]
        first: tuple[Kind, re.Match[str]] | None = None
        for number, (kind, pattern) in enumerate(self._patterns):
            mark = self._ahead[number]
            if mark and mark.start() < at:
                mark = self._ahead[number] = pattern.search(self._text, at, self._stop)
            if mark and (first is None or mark.start() < first[1].start()):
                first = kind, mark
        return first


def after_thoughts(text: str) -> int:
    """Where a reply begins that opens with the model's reasoning: nothing in that is meant to be run."""
    if opening := _THOUGHT.match(text):
        end = _END_OF_THOUGHT.search(text, opening.end())
        return end.end() if end else len(text)
    # Some servers put the opening tag into the prompt.
    if "</think" not in text:
        return 0
    end = _END_ALONE.search(text)
    return end.end() if end else 0
