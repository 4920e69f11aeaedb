"""Renders a cell's output: the last lines while it runs, the first and last lines once it has ended.

Displayed pictures, tables and texts follow, with the command that shows the rest.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from pinfold.app import changed_in_words
from pinfold.events import ActionFinished, BlobId, DisplayRef, PinfoldError, SessionId
from pinfold.front.chat.pictures import SHARE, BadPicture, Frame, Way, cell_size, draw_picture
from pinfold.front.chat.renderers import tables
from pinfold.front.chat.renderers.markdown import MarkdownStream
from pinfold.front.chat.renderers.transcript import HangingText, SpacedTranscript, cut
from pinfold.text import NO_OUTPUT, presentable, presentable_line

INDENT = "    "
TAIL = 8192
"""Characters of streamed output that are kept. More than the live region shows, so that secrets are recognised."""
_ENDS = 1 << 16
"""Bytes at either end of a long output that are searched for its first and last lines."""
STDERR = "[stderr]"


class Bounds(Struct, frozen=True):
    """Lines shown at the beginning and at the end."""

    head: int
    tail: int


CELL = Bounds(14, 8)
TOOL = Bounds(5, 3)


class Stream:
    """Output of a running action: its last characters and its number of lines."""

    def __init__(self) -> None:
        self._tail = ""
        self.lines = 0

    def add(self, text: str) -> None:
        self.lines += text.count("\n")
        self._tail = (self._tail + text)[-TAIL:]

    def __bool__(self) -> bool:
        return bool(self._tail)

    def last(self, rows: int, width: int) -> Text:
        lines = presentable(_apply_carriage_returns(self._tail.rstrip("\n"))).split("\n")
        room = max(8, width - len(INDENT) - 1)
        text = Text("\n".join(INDENT + line.expandtabs(4)[-room:] for line in lines[-rows:]), "dim")
        if self.lines > rows:
            text.append(f"\n{INDENT}{self.lines:,} lines so far", "dim italic")
        return text


def _apply_carriage_returns(text: str) -> str:
    """Drop text that is overwritten after a carriage return, as progress bars do."""
    if "\r" not in text:
        return text
    return "\n".join(line.removesuffix("\r").rpartition("\r")[2] for line in text.split("\n"))


def _read_lines(data: bytes) -> list[str]:
    """Decode lines and make them safe for a terminal."""
    text = _apply_carriage_returns(data.decode("utf-8", "replace").rstrip("\n"))
    return presentable(text).split("\n") if text else []


def render_excerpt(
    whole: bytes, bounds: Bounds, width: int, *, way: str = "/output", style: str = ""
) -> list[RenderableType]:
    """Return the first and last lines, and how many are between. Only the two ends of a long output are decoded."""
    head, tail, most = bounds.head, bounds.tail, bounds.head + bounds.tail
    if len(whole) <= 2 * _ENDS:
        first = last = _read_lines(whole)
        count = len(first)
    else:
        first, last = _read_lines(whole[:_ENDS]), _read_lines(whole[-_ENDS:])
        count = whole.count(b"\n") + (not whole.endswith(b"\n"))

    def lines(some: list[str]) -> list[RenderableType]:
        limit = 4 * width
        wide = [line.expandtabs(4) for line in some]
        cuts = [f"{cut(line, limit)}: {way}" if len(line) > limit else line for line in wide]
        return [HangingText(Text(line, style), INDENT) for line in cuts]

    if count <= most + 1 and first is last:
        return lines(first)
    first, last = first[:head], last[-tail:]
    between = count - len(first) - len(last)
    more = [Text(f"{INDENT}... {between:,} lines more: {way}", "dim italic")] if between > 0 else []
    return [*lines(first), *more, *lines(last)]


def traceback(error: str) -> list[RenderableType]:
    """Render a traceback with the cell's failing line and the error in bold."""
    lines = presentable(error.rstrip("\n")).split("\n")
    frames = [place for place, line in enumerate(lines) if line.startswith('  File "')]
    own = [place for place in frames if '"<cell ' in lines[place]] or frames
    failing = own[-1] + 1 if own and own[-1] + 1 < len(lines) else -1
    last = max((n for n, line in enumerate(lines) if line[:1].strip()), default=len(lines) - 1)
    styled: list[RenderableType] = []
    for place, line in enumerate(lines):
        if place == failing:
            style = "bold"
        elif place == last and place:
            style = "bold red"
        elif line.strip() and not line.strip("~^ "):
            style = "red"
        else:
            style = "dim" if line.startswith(("Traceback", '  File "', "    ")) and place < last else "red"
        styled.append(HangingText(Text(cut(line, 2000), style), INDENT))
    return styled


_SHOWN = re.compile(rb"(?:\A|\n)\[shown to the user: [^\]\n]{1,400}\]$")
_NOTE = re.compile(rb"(?:\A|\n)(\[[^\n]{1,2000}\])$")
_INTERRUPTED = re.compile(rb"\AThis was interrupted;[^\n]*(?:\nOutput until then:)?(?:\n|\Z)")
"""Text for the model; the status line tells the user the same."""
_EXIT = re.compile(r"(?:\A|\n)\[(exit code \d+)\]\Z")
_NOTES = 8
_LINE = 2200
"""Longest line that is searched for at the end of an output."""
_OUTCOMES = {
    "ok": ("ok", "green"),
    "error": ("error", "red"),
    "denied": ("not run", "yellow"),
    "interrupted": ("interrupted", "yellow"),
    "timeout": ("out of time", "red"),
    "killed": ("killed", "red"),
    "outcome_unknown": ("outcome unknown", "yellow"),
    "not_run": ("not run", "yellow"),
}


class Parts(Struct, kw_only=True):
    """The parts of an observation."""

    stdout: bytes
    stderr: bytes = b""
    value: str = ""
    error: str = ""
    notes: list[str] = []


def split_observation(event: ActionFinished, whole: bytes, shown_texts: list[bytes]) -> Parts:
    """Split `whole` into its parts; unrecognised text stays in the output. `shown_texts`: of the displays."""
    rest = whole.rstrip(b"\n")
    if event.outcome == "interrupted":
        rest = _INTERRUPTED.sub(b"", rest, count=1)
    parts = Parts(stdout=b"")
    if event.error:
        rest = _take_error(rest, event.error, parts)
    elif event.value is not None:
        rest = _take_value(rest, event.value, parts)
    for text in reversed(shown_texts):
        taken = _without(rest, text.rstrip(b"\n"))
        rest = rest if taken is None else taken
    while shown := _SHOWN.search(rest, max(0, len(rest) - _LINE)):
        rest = rest[: shown.start()]
    if rest == NO_OUTPUT.encode():
        rest = b""
    mark = STDERR.encode() + b"\n"
    if rest.startswith(mark):
        parts.stderr = rest[len(mark) :]
    else:
        parts.stdout, _, parts.stderr = rest.partition(b"\n" + mark)
    return parts


def _take_error(rest: bytes, error: str, parts: Parts) -> bytes:
    before, found, after = rest.rpartition(error.rstrip("\n").encode("utf-8", "surrogatepass"))
    if not found:
        return rest
    parts.error = error
    parts.notes = [line.decode("utf-8", "replace") for line in after.split(b"\n") if line.strip()]
    return before.rstrip(b"\n")


def _take_value(rest: bytes, value: str, parts: Parts) -> bytes:
    """Move the value, and notes in brackets after it, from the end of `rest` to `parts`; return what is left."""
    end = value.rstrip("\n").encode("utf-8", "surrogatepass")
    left, notes = rest, list[str]()
    for _ in range(_NOTES):
        if (before := _without(left, end)) is not None:
            parts.value, parts.notes = value, notes
            return before
        note = _NOTE.search(left, max(0, len(left) - _LINE))
        if note is None:
            break
        notes.insert(0, note[1].decode("utf-8", "replace"))
        left = left[: note.start()]
    return rest


def _without(rest: bytes, end: bytes) -> bytes | None:
    """Return `rest` without the lines `end`; None if it does not end with them."""
    if not end or not rest.endswith(end):
        return None
    before = rest[: -len(end)]
    return before.rstrip(b"\n") if not before or before.endswith(b"\n") else None


def exit_code(event: ActionFinished) -> str:
    """Return `exit code N` if a command ended with one, else an empty string."""
    found = _EXIT.search(event.observation.rstrip("\n")) if event.outcome in ("ok", "error") else None
    return found[1] if found else ""


def render_status(event: ActionFinished, exit_code: str = "") -> Text:
    """Return the status line, such as `[ok 0.02 s; variables: added x]`."""
    words, style = (exit_code, "yellow") if exit_code else _OUTCOMES[event.outcome]
    text = Text().append("    [", "dim")
    text.append(words, style)
    text.append(f" {event.duration_s:.2f} s", "dim")
    if event.variables:
        text.append(f"; {presentable_line(changed_in_words(event.variables))}", "dim")
    if event.rolled_back:
        text.append("; rolled back: variables and files are as before it", "yellow")
    return text.append("]", "dim")


_PICTURES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif", "image/webp")
_INTERACTIVE = ("application/vnd.plotly.v1+json", "application/vnd.vegalite.v5+json", "application/javascript")
_PLAIN = "text/plain"
_PREFERRED = (*_PICTURES, *_INTERACTIVE, "text/html", "text/markdown", "text/latex", _PLAIN)
_WORDS = 100_000
"""Bytes of markdown that are shown."""


class Form(Struct, frozen=True, kw_only=True):
    """The form in which a display is shown, and its plain text, which is not shown again as output."""

    mime: str
    data: bytes
    plain: bytes = b""
    number: int
    """The display's number in the session, from 1."""


class Displays:
    def __init__(
        self, transcript: SpacedTranscript, blob: Callable[[BlobId], Awaitable[bytes]], way: Way, count: int = 0
    ) -> None:
        self._transcript = transcript
        self._blob = blob
        self._way: Way = way
        self.count = count
        """Number of displays in the session so far."""

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
        """Return a blob's content; None if it is no longer stored."""
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
