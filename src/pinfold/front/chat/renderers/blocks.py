"""Splits streamed markdown into blocks and lines of code. Each is returned as soon as later text cannot change it.

Markdown-it parses whole texts only, so the blocks are found here, line by line: they do not depend on how the text arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["paragraph", "heading", "item", "quote", "table", "rule"]
TABLE_ROWS = 200
"""A longer table is split; each part repeats the header."""
LONGEST = 8192
"""Characters of a line; a longer one is split."""
_LINES = 100
"""Lines of a paragraph, item or quote; a longer one is split, because rendering takes more than linear time."""
_LONGEST_HEAD = 4000
"""Characters of a table's delimiter row; a longer one is not a table."""
_FENCE = re.compile(r"( {0,16})(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=\s|$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_ITEM = re.compile(r"(\s{0,40})([-*+•]|\d{1,9}[.)])(?:\s+(.*))?$")
_DELIMITERS = re.compile(r"\|?(?: *:?-+:? *(?:\||$))+$")
_QUOTE = re.compile(r" {0,3}> ?(.*)$")


class Block(Struct, kw_only=True):
    kind: Kind
    lines: list[str]
    level: int = 0
    """Of a heading, from 1; the depth of an item or of what belongs to one, from 0."""
    marker: str = ""
    """Of an item."""
    apart: bool = True
    """A blank line stands before it."""

    @property
    def is_long(self) -> bool:
        return len(self.lines) >= _LINES or sum(map(len, self.lines)) >= LONGEST // 2


class CodeLine(Struct, frozen=True, kw_only=True):
    text: str
    language: str = ""
    level: int = 0
    first: bool = False


Piece: TypeAlias = Block | CodeLine


class Splitter:
    def __init__(self) -> None:
        self._line_parts: list[str] = []
        """Of the line that has not ended."""
        self._line_size = 0
        self._block: Block | None = None
        """The block that has not ended."""
        self._after_blank = True
        """The line before was blank, or there was none."""
        self._indents: list[int] = []
        """Of the items that the next line may belong to."""
        self._fence: tuple[str, int, str] | None = None
        """What ends it, how far it is indented, and its language."""
        self._code_begins = self._in_indented_code = False

    def feed(self, text: str) -> Iterator[Piece]:
        first, *rest = text.split("\n")
        yield from self._add_to_line(first)
        for begun in rest:
            yield from self._line(self._end_line().removesuffix("\r"))
            yield from self._add_to_line(begun)

    def _add_to_line(self, text: str) -> Iterator[Piece]:
        """Splits a long line by its own length, not by how it arrived."""
        while self._line_size + len(text) > LONGEST:
            room = LONGEST - self._line_size
            yield from self._line(self._end_line() + text[:room])
            text = text[room:]
        if text:
            self._line_parts.append(text)
            self._line_size += len(text)

    def _end_line(self) -> str:
        line = "".join(self._line_parts)
        self._line_parts, self._line_size = [], 0
        return line

    def end(self) -> Iterator[Piece]:
        """The text is complete."""
        if last := self._end_line():
            yield from self._line(last)
        yield from self._flush()
        self._fence = None

    def tail(self, limit: int) -> str:
        """The last characters that were not returned yet."""
        kept: list[str] = []
        size = 0
        lines = self._block.lines[-limit // 8 :] if self._block else []
        for part in reversed([*(f"{line}\n" for line in lines), *self._line_parts[-limit:]]):
            kept.append(part)
            size += len(part)
            if size >= limit:
                break
        return "".join(reversed(kept))[-limit:]

    @property
    def in_code(self) -> bool:
        return self._fence is not None

    def _line(self, line: str) -> Iterator[Piece]:
        if self._fence:
            yield from self._in_fence(line, *self._fence)
            return
        if not line.strip():
            yield from self._flush()
            self._after_blank = True
            return
        looks = (self._open_fence, self._close_heading, self._in_table, self._single, self._item, self._quote)
        found = next((found for look in looks if (found := look(line)) is not None), None)
        yield from self._words(line) if found is None else found
        self._after_blank = False

    def _in_fence(self, line: str, ends: str, indent: int, language: str) -> Iterator[Piece]:
        bare = line.strip()
        if bare.startswith(ends) and not bare.strip(ends[0]):
            self._fence = None
            self._after_blank = True
            return
        text = line[min(indent, len(line) - len(line.lstrip(" "))) :]
        yield CodeLine(text=text, language=language, level=len(self._indents), first=self._code_begins)
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
        block = self._open("paragraph")
        if not match or block is None or len(block.lines) != 1 or "|" in block.lines[0]:
            return None
        block.kind, block.level = "heading", 1 if match[1][0] == "=" else 2
        return self._flush()

    def _in_table(self, line: str) -> Iterable[Piece] | None:
        if "|" not in line:
            return None
        if table := self._open("table"):
            table.lines.append(line)
            if len(table.lines) < TABLE_ROWS + 2:
                return ()
            before = self._flush()
            self._block = Block(kind="table", lines=table.lines[:2], apart=table.apart)
            return before
        words = self._open("paragraph")
        if words is None or "|" not in words.lines[-1] or len(line) >= _LONGEST_HEAD:
            return None
        if not _DELIMITERS.match(line.strip()):
            return None
        header = words.lines.pop()
        before = self._flush()
        self._begin("table", header, line)
        return before

    def _single(self, line: str) -> Iterable[Piece] | None:
        """A block of one line."""
        heading = _HEADING.match(line)
        if not heading and not _RULE.match(line):
            return None
        before = self._flush()
        self._indents = []
        if heading:
            words = line[heading.end() :].strip()
            self._begin("heading", words.rstrip("#").rstrip() or words, level=len(heading[1]))
        else:
            self._begin("rule", "")
        return (*before, *self._flush())

    def _item(self, line: str) -> Iterable[Piece] | None:
        match = _ITEM.match(line)
        if match is None:
            return None
        if match[2][0].isdigit() and self._open("paragraph") and match[2][:-1] != "1":
            return None  # a sentence that was wrapped before a number
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
        if (quote := self._open("quote")) and not quote.is_long:
            quote.lines.append(match[1])
            return ()
        before = self._flush()
        self._begin("quote", match[1], level=len(self._indents))
        return before

    def _words(self, line: str) -> Iterator[Piece]:
        if (block := self._open("paragraph", "item", "quote")) and not block.is_long:
            block.lines.append(line)
            return
        yield from self._flush()
        if not line.startswith((" ", "\t")):
            self._indents = []
        elif not self._indents and (self._after_blank or self._in_indented_code) and line.startswith(("    ", "\t")):
            yield CodeLine(text=line.removeprefix("\t").removeprefix("    "), first=not self._in_indented_code)
            self._in_indented_code = True
            return
        self._begin("paragraph", line, level=len(self._indents))

    def _open(self, *kinds: Kind) -> Block | None:
        return self._block if self._block and self._block.lines and self._block.kind in kinds else None

    def _begin(self, kind: Kind, *lines: str, level: int = 0, marker: str = "") -> None:
        apart = self._after_blank or kind != "item"
        self._block = Block(kind=kind, lines=list(lines), level=level, marker=marker, apart=apart)
        self._in_indented_code = False

    def _flush(self) -> tuple[Piece, ...]:
        block, self._block = self._block, None
        return (block,) if block and block.lines else ()
