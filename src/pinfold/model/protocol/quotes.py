"""What the user wrote, so that a reply which only repeats it is not taken for work to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

_MARKS = re.compile(r"^[ \t]*+(?:>++[ \t]?+)++", re.MULTILINE)
_HEAD = 2_000
_TRIES = 100
"""Places looked at before text that occurs all over is taken for quoted."""


class Quotes:
    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def hold(self, content: str) -> bool:
        """Whether the user wrote exactly this, whatever the spaces and marks of quotation."""
        if not self._texts:
            return False
        if len(content) > _HEAD and not any(_head(content) in text for text in self._normal):
            return False
        wanted = _normal(content)
        return bool(wanted) and any(_stands_in(wanted, text) for text in self._normal)

    @cached_property
    def _normal(self) -> list[str]:
        return [_normal(text) for text in self._texts]


def _normal(text: str) -> str:
    return " ".join((_MARKS.sub("", text) if ">" in text else text).split())


def _head(content: str) -> str:
    """Enough of a long text to tell it from others, without a word that is cut."""
    return _normal(content[:_HEAD]).rpartition(" ")[0]


def _stands_in(wanted: str, text: str) -> bool:
    """As words of its own: `x` does not stand in `example`."""
    at = -1
    for _ in range(_TRIES):
        at = text.find(wanted, at + 1)
        if at < 0:
            return False
        before, after = text[at - 1 : at], text[at + len(wanted) : at + len(wanted) + 1]
        if not (_joins(before, wanted[0]) or _joins(wanted[-1], after)):
            return True
    return True


def _joins(left: str, right: str) -> bool:
    return bool(left and right) and all(char.isalnum() or char == "_" for char in (left, right))
