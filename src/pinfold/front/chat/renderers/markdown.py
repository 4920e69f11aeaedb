"""Markdown in the terminal: finished blocks go to the transcript, the unfinished one to the live region.

Streamed text is split into blocks and lines of code; each is written as soon as later text cannot change it.
Markdown-it parses only whole texts, so blocks are found here, line by line, regardless of how the text arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from anyio.lowlevel import checkpoint
from markdown_it import MarkdownIt
from msgspec import Struct
from rich.console import RenderableType
from rich.rule import Rule
from rich.text import Text

from pinfold.front.chat.renderers.code import Highlighter
from pinfold.front.chat.renderers.tables import Grid, render_table
from pinfold.front.chat.renderers.transcript import PIECE, HangingText, SpacedTranscript, with_gutter
from pinfold.text import presentable

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
    """Level of a heading, from 1; depth in nested lists of any other block, from 0."""
    marker: str = ""
    """Bullet or number of a list item."""
    apart: bool = True
    """True if a blank line precedes the block."""

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
        self._begun = ""
        """The unfinished line."""
        self._block: Block | None = None
        """The unfinished block."""
        self._after_blank = True
        """True if the previous line was blank, or there was none."""
        self._indents: list[int] = []
        """Indents of the list items that the next line may belong to."""
        self._fence: tuple[str, int, str] | None = None
        """The open fence's closing marker, indent and language."""
        self._code_begins = self._in_indented_code = False

    def feed(self, text: str) -> Iterator[Piece]:
        first, *rest = text.split("\n")
        yield from self._add_to_line(first)
        for begun in rest:
            line, self._begun = self._begun, ""
            yield from self._line(line.removesuffix("\r"))
            yield from self._add_to_line(begun)

    def _add_to_line(self, text: str) -> Iterator[Piece]:
        """Split a long line at a fixed length, regardless of how it arrived."""
        self._begun += text
        while len(self._begun) > LONGEST:
            line, self._begun = self._begun[:LONGEST], self._begun[LONGEST:]
            yield from self._line(line)

    def end(self) -> Iterator[Piece]:
        """Yield the rest, once the text is complete."""
        if self._begun:
            yield from self._line(self._begun)
            self._begun = ""
        yield from self._flush()
        self._fence = None

    def tail(self, limit: int) -> str:
        """Return the last characters that are in no piece yet."""
        lines = self._block.lines[-limit // 8 :] if self._block else []
        return "\n".join([*lines, self._begun])[-limit:]

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
        """Parse a block of one line: a heading or a rule."""
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
            return None  # a sentence that was wrapped in front of a number
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


_TAIL = 8192
"""Characters of the unfinished block that are rendered: more than are shown live, so that secrets are recognised."""
_STEP = 2
"""Indentation of one level of a list."""
_CODE_INDENT = 4
_CELL = re.compile(r"(?<!\\)\|")


class MarkdownStream:
    """Renders one reply while its text arrives."""

    def __init__(self, transcript: SpacedTranscript) -> None:
        self._transcript = transcript
        self._splitter = Splitter()
        self._code: Highlighter | None = None
        self._was_code = False
        self._begun = False
        self.codes: list[list[str]] = []
        """The code blocks written so far, each as a list of lines."""

    def add(self, text: str) -> None:
        with self._transcript.together():
            for piece in self._splitter.feed(text):
                self._write(piece)

    def end(self) -> None:
        with self._transcript.together():
            for piece in self._splitter.end():
                self._write(piece)
            self._close_code()

    async def write_all(self, text: str) -> None:
        """Write a whole text."""
        for at in range(0, len(text), PIECE):
            self.add(text[at : at + PIECE])
            await checkpoint()
        self.end()

    def render_unfinished(self) -> Text | None:
        """Render the end of the unfinished block."""
        tail = self._splitter.tail(_TAIL)
        if self._code and self._splitter.in_code:
            shown = self._code.partial_line(tail)
            return inline("").append(" " * _CODE_INDENT + shown, "dim") if shown.strip() else None
        return inline(presentable(tail).rstrip("\n")) if tail.strip() else None

    def _write(self, piece: Piece) -> None:
        if isinstance(piece, CodeLine):
            self._write_code(piece)
            return
        self._close_code()
        if piece.apart or not self._begun:
            self._transcript.gap()
        self._begun = True
        self._transcript.write(render_block(piece, self._transcript.width))

    def _write_code(self, piece: CodeLine) -> None:
        if piece.first or self._code is None:
            self._close_code()
            self._transcript.gap()
            self._code = Highlighter(piece.language)
            self.codes.append([])
        self._begun = self._was_code = True
        self.codes[-1].append(piece.text)
        if (line := self._code.line(piece.text)) is not None:
            self._transcript.write(with_gutter(line, " " * (_CODE_INDENT + piece.level * _STEP)))

    def _close_code(self) -> None:
        if self._was_code:
            self._transcript.gap()
        self._code, self._was_code = None, False


def render_block(block: Block, width: int) -> RenderableType:
    """Render a finished block, made safe for a terminal."""
    indent = " " * (block.level * _STEP)
    match block.kind:
        case "rule":
            return Rule(style="dim")
        case "table":
            return _table(block, width)
        case "heading":
            return inline(presentable(block.lines[0]), f"bold{' underline' * (block.level == 1)}")
        case "quote":
            bar = f"{indent}│ "
            return HangingText(inline(_join_lines(block), "italic"), bar, bar, "dim")
        case "item":
            marker = "•" if block.marker in "-*+•" else block.marker
            return HangingText(inline(_join_lines(block)), f"{indent} {marker} ")
        case "paragraph":
            words = inline(_join_lines(block))
            return HangingText(words, f"{indent} ") if block.level else words


def _join_lines(block: Block) -> str:
    """Join the lines and keep the line breaks, which models mean when they list values line by line."""
    lines = presentable("\n".join(block.lines)).split("\n")
    return "\n".join((*(line.strip().removesuffix("\\") for line in lines[:-1]), lines[-1].strip()))


def _table(block: Block, width: int) -> RenderableType:
    head, delimiters, *rows = (_cells(presentable(line)) for line in block.lines)
    right = tuple(one.endswith(":") for one in delimiters)
    grid = Grid(columns=tuple(head), rows=tuple(tuple(row[: len(head)]) for row in rows), right=right)
    return render_table(grid, width, words=inline)


def _cells(line: str) -> list[str]:
    line = line.strip().removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)]


CODE = "cyan"
LINK = "underline"
_STYLES = {"em": "italic", "strong": "bold", "s": "strike", "a": LINK}
# Entities could bring back characters that `presentable` has removed.
_PARSER = MarkdownIt("commonmark").enable("strikethrough").disable("entity")


def inline(source: str, style: str = "") -> Text:
    """Render inline markdown. `source` must already be safe for a terminal."""
    text = Text(style=style)
    styles: list[str] = []
    link = (0, "")
    for token in _PARSER.parseInline(source)[0].children or ():
        if token.nesting == 1:
            styles.append(_STYLES[token.tag])
            if token.tag == "a":
                link = (len(text), str(token.attrGet("href")))
        elif token.nesting == -1:
            styles.pop()
            if token.tag == "a":
                begins, address = link
                _add_address(text, text.plain[begins:], address)
        elif token.type == "image":
            address = str(token.attrGet("src"))
            text.append(token.content or address, " ".join([*styles, LINK]))
            _add_address(text, token.content, address)
        elif token.type == "code_inline":
            text.append(token.content, " ".join([*styles, CODE]))
        else:
            is_break = token.type in ("softbreak", "hardbreak")
            is_break = is_break or token.content.lower().replace(" ", "") in ("<br>", "<br/>")
            text.append("\n" if is_break else token.content, " ".join(styles))
    return text


def _add_address(text: Text, words: str, address: str) -> None:
    """Show a link's address unless the words are the address: they could claim another one."""
    if words and words not in (address, address.removeprefix("mailto:")):
        text.append(f" ({address})", "dim")
