"""Markdown in the terminal: finished blocks go to the transcript, the unfinished one to the live region."""

from __future__ import annotations

import re

from anyio.lowlevel import checkpoint
from markdown_it import MarkdownIt
from rich.console import RenderableType
from rich.rule import Rule
from rich.text import Text

from pinfold.front.chat.renderers.blocks import Block, CodeLine, Piece, Splitter
from pinfold.front.chat.renderers.code import Highlighter
from pinfold.front.chat.renderers.tables import Grid, render_table
from pinfold.front.chat.renderers.transcript import PIECE, HangingText, SpacedTranscript, with_gutter
from pinfold.text import presentable

LIVE_ROWS = 6
_TAIL = 8192
"""Characters of the unfinished block that are rendered. More than the live region shows, so that secrets are recognised."""
_STEP = 2
"""Indentation of one level of a list."""
_CODE_INDENT = 4
_CELL = re.compile(r"(?<!\\)\|")


class MarkdownStream:
    """One reply, from its first character to its last."""

    def __init__(self, transcript: SpacedTranscript, style: str = "") -> None:
        self._transcript = transcript
        self._style = style
        self._splitter = Splitter()
        self._code: Highlighter | None = None
        self._was_code = False
        self._begun = False
        self.codes: list[list[str]] = []
        """The code blocks that were written, by line."""

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
        """The end of the block that is not finished."""
        tail = self._splitter.tail(_TAIL)
        if self._code and self._splitter.in_code:
            shown = self._code.partial_line(tail)
            return inline("").append(" " * _CODE_INDENT + shown, "dim") if shown.strip() else None
        return inline(presentable(tail).rstrip("\n"), self._style) if tail.strip() else None

    def _write(self, piece: Piece) -> None:
        if isinstance(piece, CodeLine):
            self._write_code(piece)
            return
        self._close_code()
        if piece.apart or not self._begun:
            self._transcript.gap()
        self._begun = True
        self._transcript.write(render_block(piece, self._transcript.width, self._style))

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


def render_block(block: Block, width: int, style: str = "") -> RenderableType:
    """A finished block, made safe for a terminal."""
    indent = " " * (block.level * _STEP)
    match block.kind:
        case "rule":
            return Rule(style="dim")
        case "table":
            return _table(block, width)
        case "heading":
            return inline(presentable(block.lines[0]), f"{style} bold{' underline' * (block.level == 1)}")
        case "quote":
            bar = f"{indent}│ "
            return HangingText(inline(_join_lines(block), f"{style} italic"), bar, bar, "dim")
        case "item":
            marker = "•" if block.marker in "-*+•" else block.marker
            return HangingText(inline(_join_lines(block), style), f"{indent} {marker} ")
        case "paragraph":
            words = inline(_join_lines(block), style)
            return HangingText(words, f"{indent} ") if block.level else words


def _join_lines(block: Block) -> str:
    """Keeps line breaks: models that list values line by line mean them."""
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
# Entities would bring characters back that were made harmless before.
_PARSER = MarkdownIt("commonmark").enable("strikethrough").disable("entity")


def inline(source: str, style: str = "") -> Text:
    """`source` is safe for a terminal already."""
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
    """The address is always shown: the words may claim another one."""
    if words and words not in (address, address.removeprefix("mailto:")):
        text.append(f" ({address})", "dim")
