"""Markdown inside a line: emphasis, code, links. Linear in its length, whatever it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_TOKEN = re.compile(
    r"(?P<escaped>\\[!-/:-@\[-`{-~])"
    r"|(?P<ticks>`+)"
    r"|(?P<marks>\*{1,3}|_{1,3}|~~)"
    r"|(?P<link>!?\[(?P<words>[^\[\]\n]{0,400})\]\((?P<url>[^()\s]{1,1000}(?:\([^()\s]{0,200}\)[^()\s]{0,400})?)"
    r"(?:[ ]+(?:\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'))?\))"
    r"|<(?P<address>(?:https?://|mailto:)[^<>\s]{1,1000})>"
    r"|(?P<broken><br ?/?>)"
)
_TICKS = re.compile(r"`+")
_STYLES = {1: "italic", 2: "bold", 3: "bold italic"}
_DEEPEST = 8
"""Emphasis inside emphasis; what is deeper is shown as it is written."""
CODE = "cyan"
LINK = "underline"


class _Line:
    def __init__(self, source: str) -> None:
        self._source = source
        self._parts: list[tuple[str, str]] = []
        self._opened: list[tuple[str, int]] = []
        """Marks that wait for their fellow, and which part they are."""
        self._ticks: dict[int, list[int]] = {}
        """Where runs of backticks begin, by their length, last first."""
        for run in reversed(list(_TICKS.finditer(source))):
            self._ticks.setdefault(len(run.group()), []).append(run.start())

    def parts(self) -> list[tuple[str, str]]:
        at = 0
        while token := _TOKEN.search(self._source, at):
            self._add(self._source[at : token.start()])
            at = token.end()
            if token["escaped"]:
                self._add(token["escaped"][1])
            elif token["ticks"]:
                at = self._code(token)
            elif token["link"]:
                self._link(token["words"], token["url"])
            elif token["address"]:
                self._add(token["address"], LINK)
            elif token["broken"]:
                self._add("\n")
            else:
                self._mark(token)
        self._add(self._source[at:])
        return self._parts

    def _add(self, text: str, style: str = "") -> None:
        if text:
            self._parts.append((text, style))

    def _code(self, token: re.Match[str]) -> int:
        """Up to the next run of the same length; without one the ticks are only ticks."""
        places = self._ticks.get(len(token.group()), [])
        while places and places[-1] < token.end():
            places.pop()
        if not places:
            self._add(token.group())
            return token.end()
        inside = self._source[token.end() : places[-1]].replace("\n", " ")
        if inside[:1] == inside[-1:] == " " and inside.strip():
            inside = inside[1:-1]
        self._add(inside, CODE)
        return places.pop() + len(token.group())

    def _link(self, words: str, url: str) -> None:
        """The address is always seen: words may claim another."""
        self._add(words or url, LINK)
        if words and words not in (url, url.removeprefix("mailto:")):
            self._add(f" ({url})", "dim")

    def _mark(self, token: re.Match[str]) -> None:
        mark, begins, ends = token.group(), token.start(), token.end()
        before, after = self._source[max(0, begins - 1) : begins], self._source[ends : ends + 1]
        opens = bool(after) and not after.isspace()
        closes = bool(before) and not before.isspace()
        if "_" in mark:  # snake_case is a word
            opens = opens and not before.isalnum()
            closes = closes and not after.isalnum()
        if closes and self._close(mark):
            return
        if opens and len(self._opened) < _DEEPEST:
            self._opened.append((mark, len(self._parts)))
        self._add(mark)

    def _close(self, mark: str) -> bool:
        for depth in range(len(self._opened) - 1, -1, -1):
            other, place = self._opened[depth]
            if other == mark and place + 1 < len(self._parts):
                style = "strike" if mark == "~~" else _STYLES[len(mark)]
                self._parts[place] = ("", "")
                for here in range(place + 1, len(self._parts)):
                    text, old = self._parts[here]
                    self._parts[here] = (text, f"{old} {style}".strip())
                del self._opened[depth:]
                return True
        return False


def inline(source: str, style: str = "") -> Text:
    """As it is to be read. `source` is fit for a terminal already."""
    from rich.text import Text

    return Text.assemble(*(part for part in _Line(source).parts() if part[0]), style=style)
