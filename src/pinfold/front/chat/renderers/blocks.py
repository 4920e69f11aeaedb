"""Markdown cut into its blocks as it comes: each is given out the moment nothing can change it any more.

Looks at whole lines only, so the blocks do not depend on how the text arrived. Every line is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["paragraph", "heading", "item", "quote", "table", "rule"]
TABLE_ROWS = 200
"""After so many a table is given out, and the rest is another one under the same header."""
_FENCE = re.compile(r"( {0,16})(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=\s|$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_ITEM = re.compile(r"(\s{0,40})([-*+•]|\d{1,9}[.)])(?:\s+(.*))?$")
_DELIMITERS = re.compile(r"\|?(?: *:?-+:? *(?:\||$))+$")
LONGEST = 8192
"""Characters of a line; a longer one goes on in the next."""
_LINES = 100
"""Of a block of words. What makes it all look as it should takes longer than its length, if there is no end to it."""
_LONGEST_HEAD = 4000
"""Of a line under the head of a table; a longer one is none."""
_QUOTE = re.compile(r" {0,3}> ?(.*)$")


class Block(Struct, frozen=True, kw_only=True):
    kind: Kind
    lines: tuple[str, ...]
    level: int = 0
    """Of a heading from 1; how deep an item, or what belongs to one, is, from 0."""
    marker: str = ""
    """Of an item."""
    apart: bool = True
    """A blank line stands before it."""


class CodeLine(Struct, frozen=True, kw_only=True):
    text: str
    language: str = ""
    level: int = 0
    first: bool = False


Piece: TypeAlias = Block | CodeLine


class Splitter:
    def __init__(self) -> None:
        self._size = 0
        self._parts: list[str] = []
        """Of the line that has not ended."""
        self._lines: list[str] = []
        """Of the block that has not ended."""
        self._kind: Kind = "paragraph"
        self._level = 0
        self._marker = ""
        self._apart = True
        self._blank = True
        """The line before was blank, or there was none."""
        self._indents: list[int] = []
        """Of the items that the next line may belong to."""
        self._fence: tuple[str, int, str] | None = None
        """What ends it, how far it is indented, and its language."""
        self._code_begins = False
        self._indented = False

    def feed(self, text: str) -> Iterator[Piece]:
        first, *whole = text.split("\n")
        yield from self._add_to_line(first)
        for begun in whole:
            yield from self._line("".join(self._parts).removesuffix("\r"))
            self._parts, self._size = [], 0
            yield from self._add_to_line(begun)

    def _add_to_line(self, text: str) -> Iterator[Piece]:
        """Of the line that has not ended. Cut by its own length, never by how it came."""
        while self._size + len(text) > LONGEST:
            room = LONGEST - self._size
            yield from self._line("".join((*self._parts, text[:room])))
            self._parts, self._size, text = [], 0, text[room:]
        if text:
            self._parts.append(text)
            self._size += len(text)

    def end(self) -> Iterator[Piece]:
        """Nothing more comes: what is unfinished is finished so."""
        last = "".join(self._parts)
        self._parts, self._size = [], 0
        if last:
            yield from self._line(last)
        yield from self._flush()
        self._fence = None

    def tail(self, limit: int) -> str:
        """The last characters of what has not been given out."""
        kept: list[str] = []
        size = 0
        pending = [*(f"{line}\n" for line in self._lines[-limit // 8 :]), *self._parts[-limit:]]
        for part in reversed(pending):
            kept.append(part)
            size += len(part)
            if size >= limit:
                break
        return "".join(reversed(kept))[-limit:]

    @property
    def in_code(self) -> str | None:
        """The language of the code that is being written; None outside code."""
        return self._fence[2] if self._fence else None

    @property
    def _is_long(self) -> bool:
        return len(self._lines) >= _LINES or sum(map(len, self._lines)) >= LONGEST // 2

    def _line(self, line: str) -> Iterator[Piece]:
        if self._fence:
            yield from self._in_fence(line, *self._fence)
            return
        if not line.strip():
            yield from self._flush()
            self._blank = True
            return
        for look in (self._open_fence, self._close_heading, self._in_table, self._single, self._item, self._quote):
            if (found := look(line)) is not None:
                yield from found
                self._blank = False
                return
        yield from self._words(line)
        self._blank = False

    def _in_fence(self, line: str, ends: str, indent: int, language: str) -> Iterator[Piece]:
        bare = line.strip()
        if bare.startswith(ends) and not bare.strip(ends[0]):
            self._fence = None
            self._blank = True
            return
        blank = len(line) - len(line.lstrip(" "))
        yield CodeLine(
            text=line[min(indent, blank) :], language=language, level=len(self._indents), first=self._code_begins
        )
        self._code_begins = False

    def _open_fence(self, line: str) -> Iterable[Piece] | None:
        match = _FENCE.match(line)
        if match is None:
            return None
        if not match[1]:
            self._indents = []
        self._fence = (match[2], len(match[1]), match[3].strip())
        self._code_begins = True
        return self._flush()

    def _close_heading(self, line: str) -> Iterable[Piece] | None:
        match = _UNDERLINE.match(line)
        if not (match and self._lines and self._kind == "paragraph" and len(self._lines) == 1):
            return None
        if "|" in self._lines[0]:
            return None
        self._kind, self._level = "heading", 1 if match[1][0] == "=" else 2
        return self._flush()

    def _in_table(self, line: str) -> Iterable[Piece] | None:
        if self._lines and self._kind == "table":
            if "|" not in line:
                return None
            self._lines.append(line)
            if len(self._lines) < TABLE_ROWS + 2:
                return ()
            header = self._lines[:2]
            block = self._flush()
            self._lines, self._kind = header, "table"
            return block
        is_head = self._lines and self._kind == "paragraph" and "|" in self._lines[-1]
        if not (is_head and "|" in line and len(line) < _LONGEST_HEAD and _DELIMITERS.match(line.strip())):
            return None
        header = self._lines.pop()
        before = self._flush()
        self._begin("table", header, line)
        return before

    def _single(self, line: str) -> Iterable[Piece] | None:
        """A block that is one line."""
        heading = _HEADING.match(line)
        if not heading and not _RULE.match(line):
            return None
        before = self._flush()
        self._indents = []
        if heading:
            words = line[heading.end() :].strip()
            self._begin("heading", words.rstrip("#").rstrip() or words, level=len(heading[1]))
        else:
            self._begin("rule")
        return (*before, *self._flush())

    def _item(self, line: str) -> Iterable[Piece] | None:
        match = _ITEM.match(line)
        if match is None:
            return None
        if match[2][0].isdigit() and self._lines and self._kind == "paragraph" and match[2][:-1] != "1":
            return None  # a sentence that a number was wrapped out of
        before = self._flush()
        indent = len(match[1].expandtabs(4))
        while self._indents and indent < self._indents[-1]:
            self._indents.pop()
        if not self._indents or indent >= self._indents[-1] + 2:
            self._indents.append(indent)
        self._begin("item", match[3] or "", level=len(self._indents) - 1, marker=match[2])
        return before

    def _quote(self, line: str) -> Iterable[Piece] | None:
        match = _QUOTE.match(line)
        if match is None:
            return None
        if self._lines and self._kind == "quote" and not self._is_long:
            self._lines.append(match[1])
            return ()
        before = self._flush()
        self._begin("quote", match[1], level=len(self._indents))
        return before

    def _words(self, line: str) -> Iterator[Piece]:
        if self._lines and self._kind in ("paragraph", "item", "quote") and not self._is_long:
            self._lines.append(line)
            return
        yield from self._flush()
        indent = len(line) - len(line.lstrip(" \t"))
        if indent == 0:
            self._indents = []
        elif not self._indents and (self._blank or self._indented) and line.startswith(("    ", "\t")):
            yield CodeLine(text=line.removeprefix("\t").removeprefix("    "), first=not self._indented)
            self._indented = True
            return
        self._begin("paragraph", line, level=len(self._indents))

    def _begin(self, kind: Kind, *lines: str, level: int = 0, marker: str = "") -> None:
        self._kind, self._lines, self._level, self._marker = kind, list(lines), level, marker
        self._apart = self._blank or kind != "item"
        self._indented = False
        if kind == "rule":
            self._lines = [""]

    def _flush(self) -> tuple[Piece, ...]:
        if not self._lines:
            return ()
        block = Block(
            kind=self._kind, lines=tuple(self._lines), level=self._level, marker=self._marker, apart=self._apart
        )
        self._lines, self._kind = [], "paragraph"
        return (block,)
