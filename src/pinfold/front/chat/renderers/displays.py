"""Shows what a cell displayed: pictures, tables, text; and the command that shows the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct
from rich.padding import Padding
from rich.text import Text

from pinfold.events import BlobId, DisplayRef, PinfoldError, SessionId
from pinfold.front.chat.pictures import SHARE, BadPicture, Frame, Way, cell_size, draw_picture
from pinfold.front.chat.renderers import tables
from pinfold.front.chat.renderers.markdown import MarkdownStream
from pinfold.front.chat.renderers.output import CELL, INDENT, render_excerpt
from pinfold.front.chat.renderers.transcript import HangingText, SpacedTranscript
from pinfold.text import presentable_line

_PICTURES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif", "image/webp")
_INTERACTIVE = ("application/vnd.plotly.v1+json", "application/vnd.vegalite.v5+json", "application/javascript")
_PLAIN = "text/plain"
_PREFERRED = (*_PICTURES, *_INTERACTIVE, "text/html", "text/markdown", "text/latex", _PLAIN)
_WORDS = 100_000
"""Bytes of markdown that are shown."""


class Form(Struct, frozen=True, kw_only=True):
    """The form of a display that is shown, and its plain text, which is not repeated."""

    mime: str
    data: bytes
    plain: bytes = b""
    number: int
    """Its number in the session, from 1."""


class Displays:
    def __init__(
        self, transcript: SpacedTranscript, blob: Callable[[BlobId], Awaitable[bytes]], way: Way, count: int = 0
    ) -> None:
        self._transcript = transcript
        self._blob = blob
        self._way: Way = way
        self.count = count
        """Displays of the session so far."""

    async def forms(self, displays: tuple[DisplayRef, ...]) -> list[Form]:
        found: list[Form] = []
        for display in displays:
            self.count += 1
            mime = next((mime for mime in _PREFERRED if mime in display.mime), next(iter(display.mime), _PLAIN))
            plain = await self.read(display.mime.get(_PLAIN)) if _PLAIN in display.mime else b""
            data = plain if mime == _PLAIN else await self.read(display.mime.get(mime))
            found.append(Form(mime=mime, data=data or b"", plain=plain or b"", number=self.count))
        return found

    async def read(self, blob: BlobId | None) -> bytes | None:
        """None if it is no longer stored."""
        if blob is None:
            return None
        try:
            return await self._blob(blob)
        except (PinfoldError, OSError, LookupError):
            return None

    async def show(self, form: Form, session: SessionId) -> None:
        where = f"pinfold sessions show {session} --display {form.number}"
        if form.mime in _PICTURES:
            await self._picture(form, where)
        elif form.mime == "text/html":
            self._page(form, where)
        elif form.mime == "text/markdown":
            await MarkdownStream(self._transcript).write_all(form.data[:_WORDS].decode("utf-8", "replace"))
            if len(form.data) > _WORDS:
                self._note(f"... {len(form.data) - _WORDS:,} bytes more: {where}")
        elif form.mime in ("text/plain", "text/latex"):
            self._transcript.write(*render_excerpt(form.data, CELL, self._transcript.width, way=where))
        else:
            self._note(f"{presentable_line(form.mime)}: {where}")

    async def _picture(self, form: Form, where: str) -> None:
        why = ""
        if self._way != "path":
            frame = Frame(columns=max(8, int(self._transcript.width * SHARE)), cell=cell_size())
            try:
                drawing = await anyio.to_thread.run_sync(draw_picture, form.data, form.mime, self._way, frame)
            except BadPicture as problem:
                why = f" ({problem})"
            else:
                if drawing.lines:
                    self._transcript.write(*(HangingText(line, INDENT) for line in drawing.lines))
                else:
                    self._transcript.raw(drawing.data, drawing.rows)
        self._note(f"picture{why}: {where}")

    def _page(self, form: Form, where: str) -> None:
        grid = tables.parse_html_table(form.data[: 4 * tables.HTML].decode("utf-8", "replace"))
        if grid is not None:
            table = tables.render_table(grid, self._transcript.width - len(INDENT))
            self._transcript.write(Padding(table, (0, 0, 0, len(INDENT)), expand=False))
            return
        plain = form.plain
        if plain and not (plain.startswith(b"<") and plain.endswith(b">")):
            self._transcript.write(*render_excerpt(plain, CELL, self._transcript.width))
        self._note(f"page: {where}")

    def _note(self, words: str) -> None:
        self._transcript.write(Text(INDENT + words, "dim", overflow="fold"))
