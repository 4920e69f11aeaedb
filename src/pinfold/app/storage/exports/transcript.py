"""The transcript of a session, the source of every export: prompts, answers, cells and displays, from events and blobs.

Pure. All text is cleaned here, once, of secrets and of characters that steer a terminal or hide text. From code only
secrets are removed, because it is to be run again.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pinfold import events
from pinfold.app.errors import ConfigError
from pinfold.app.session.agent_tools import START, runs_in
from pinfold.app.session.observations import describe_display
from pinfold.app.storage.exports.transcript_text import clean_code, clean_text, remove_code, split_observation
from pinfold.engine import compacted_in_words, fold, plan_in_words, rewound_in_words
from pinfold.sandbox import Display
from pinfold.text import first_line, presentable_line, redact

ReadBlob: TypeAlias = Callable[[events.BlobId], bytes]
"""Reads a blob. Raises PinfoldError if it is missing."""
Standing: TypeAlias = Literal["kept", "undone", "not run"]
"""Whether the effects of a cell or call are in force, were undone, or never happened."""
_TELLING = ("command", "path", "url", "pattern", "query", "text")
_ANSWER = "answer"
UNTITLED = "Untitled session"
_MIME = re.compile(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*")
_SERVERS = re.compile(r"^\s*(?:from|import)\s+servers\b|\bservers\.\w", re.MULTILINE)


PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg"}
"""File suffix of each picture type."""
_SUFFIXES = {
    **PICTURES,
    "text/html": "html",
    "text/markdown": "md",
    "text/latex": "tex",
    "application/json": "json",
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/plain": "txt",
}
_BEST = (*PICTURES, "text/html", "text/markdown", "text/latex", "application/json")


class Form(Struct, frozen=True, kw_only=True):
    """One form of a display."""

    mime: str
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class ShownDisplay(Struct, frozen=True, kw_only=True):
    """A display with those of its forms that still exist."""

    number: int
    """Index among all displays of the session, from 1."""
    forms: Mapping[str, Form]


class Prompt(Struct, frozen=True, kw_only=True):
    text: str
    images: tuple[Form, ...] = ()


class Answer(Struct, frozen=True, kw_only=True):
    text: str


class Step(Struct, frozen=True, kw_only=True):
    """A tool call."""

    tool: str
    args: str
    """The arguments as JSON."""
    about: str = ""
    """The most telling argument, in one line."""
    standing: Standing = "not run"
    outcome: str = ""
    text: str = ""
    files: tuple[str, ...] = ()
    """Changes to workspace files, such as `added report.csv`."""

    @property
    def how(self) -> str:
        """The outcome in words."""
        return self.outcome.replace("_", " ") or "no end"


class Cell(Struct, frozen=True, kw_only=True):
    code: str
    number: int | None = None
    standing: Standing = "not run"
    by_user: bool = False
    outcome: str = ""
    """Empty if the cell has not finished."""
    why: str = ""
    """Why the cell was not run."""
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: str | None = None
    notices: tuple[str, ...] = ()
    result: ShownDisplay | None = None
    """The value, if it has other forms than text."""
    displays: tuple[ShownDisplay, ...] = ()
    calls: tuple[Step, ...] = ()
    """Calls made by the cell's code."""
    files: tuple[str, ...] = ()
    uses_servers: bool = False
    took_s: float = 0.0


class Note(Struct, frozen=True, kw_only=True):
    label: str
    text: str


Item: TypeAlias = Prompt | Answer | Cell | Step | Note


class Transcript(Struct, frozen=True, kw_only=True):
    session: str = ""
    title: str = UNTITLED
    models: tuple[str, ...] = ()
    workspace: str = ""
    began: str = ""
    items: tuple[Item, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(item for item in self.items if isinstance(item, Cell))

    @property
    def path(self) -> tuple[Cell, ...]:
        """The cells whose effects are in force, in order."""
        return tuple(cell for cell in self.cells if cell.standing == "kept")


def build_transcript(entries: Sequence[events.Entry], blob: ReadBlob) -> Transcript:
    """Build the transcript. Never fails on odd or unordered events."""
    state = fold(entries)
    builder = _TranscriptBuilder(blob, state.undone)
    for entry in entries:
        builder.add_entry(entry)
    if entries and (plan := plan_in_words(state.plan)):
        builder.add_note(entries[-1], "plan", plan)
    spoken = next((entry.event.text for entry in entries if isinstance(entry.event, events.UserSpoke)), "")
    title = builder.title or first_line(spoken, 100)
    return Transcript(
        session=entries[-1].session if entries else "",
        title=presentable_line(title) or UNTITLED,
        models=tuple(dict.fromkeys(filter(None, builder.models))),
        workspace=presentable_line(state.opened.workspace) if state.opened else "",
        began=entries[0].at if entries else "",
        items=tuple(builder.list_items()),
    )


def is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime.endswith(("json", "+xml", "javascript"))


def best_of(mimes: Iterable[str]) -> str | None:
    """Return the best form for a person; plain text comes last."""
    there = [*mimes]
    plain_last = sorted(there, key=lambda mime: mime == "text/plain")
    return next((mime for mime in (*_BEST, *plain_last) if mime in there), None)


def suffix_of(mime: str) -> str:
    """Return the file suffix, without the dot."""
    return _SUFFIXES.get(mime, "json" if mime.endswith("+json") else "bin")


def size_of(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG or GIF, whose sizes are at a fixed offset."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR" and len(data) >= 24:
        return struct.unpack(">II", data[16:24])
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return struct.unpack("<HH", data[6:10])
    return None


def display_label(number: int, forms: Mapping[str, Form]) -> str:
    """Return a label such as `display 3: image/png 640x480`."""
    best = best_of(forms)
    if best is None:
        return f"display {number}: no longer available"
    size = size_of(forms[best].data)
    what = f" {size[0]}x{size[1]}" if size else f" {len(forms[best].data):,} bytes"
    return f"display {number}: {best}{what}"


def displays_in(entries: Iterable[events.Entry]) -> list[events.DisplayRef]:
    """Return all displays of a session in order; the first is number 1."""
    return [
        display
        for entry in entries
        if isinstance(entry.event, events.ActionFinished)
        for display in entry.event.displays
    ]


def display_form(entries: Iterable[events.Entry], blob: ReadBlob, number: int, mime: str | None = None) -> Form:
    """Return a display in its best form, or in the form `mime`. Raises ConfigError."""
    there = displays_in(entries)
    if not 1 <= number <= len(there):
        has = f"has {len(there)}, counted from 1" if there else "has none"
        raise ConfigError(f"there is no display {number}: the session {has}")
    forms = there[number - 1].mime
    wanted = mime or best_of(forms)
    if wanted is None or wanted not in forms:
        named = ", ".join(map(presentable_line, forms)) or "no form at all"
        raise ConfigError(f"display {number} has no form {wanted}: it has {named}")
    return form_of(wanted, blob(forms[wanted]))


def form_of(mime: str, data: bytes) -> Form:
    """Return a form, with secrets removed if it is text."""
    if is_text(mime):
        data = redact(data.decode("utf-8", "replace")).encode()
    return Form(mime=presentable_line(mime), data=data)


def show_forms(number: int, forms: Mapping[str, bytes]) -> ShownDisplay:
    return ShownDisplay(number=number, forms={mime: form_of(mime, data) for mime, data in forms.items()})


class _TranscriptBuilder:
    def __init__(self, blob: ReadBlob, undone: frozenset[int]) -> None:
        self._blob = blob
        self._undone = undone
        self._items: dict[object, Item] = {}
        """Items by action id or event number, in the order they began."""
        self._parents: dict[events.ActionId, events.ActionId] = {}
        self._turns: dict[object, events.TurnId] = {}
        self._forgotten: set[events.TurnId] = set()
        self._last_words: dict[events.TurnId, str] = {}
        self._displays = 0
        self.title = ""
        self.models: list[str] = []

    def list_items(self) -> Iterable[Item]:
        return (item for key, item in self._items.items() if self._turns.get(key) not in self._forgotten)

    def add_entry(self, entry: events.Entry) -> None:
        match entry.event:
            case events.ActionProposed() as event:
                self._add_action(event)
            case events.ActionStarted() | events.ActionDenied() | events.ActionFinished() as event:
                self._update_action(event)
            case events.SessionChanged(title=title):
                self.title = title or self.title
            case events.SessionRewound(forgotten=forgotten, recalled=recalled) as event:
                self._forgotten = (self._forgotten | {*forgotten}) - {*recalled}
                self.add_note(entry, "undo", f"The user {rewound_in_words(event)}")
            case events.SessionForked(source=source):
                self.add_note(entry, "fork", f"All before was copied from {source}.")
            case events.SessionOpened(lost=lost) if lost:
                self.add_note(entry, "reopened", f"Lost: {', '.join(lost)}.")
            case events.ContextCompacted(cause="window" | "asked") as event:
                self.add_note(entry, "context", compacted_in_words(event))
            case events.ContextCompacted():
                self.add_note(entry, "context", "The model began anew here; variables and files stayed.")
            case events.Noticed(text=text):
                self.add_note(entry, "notice", text)
            case _:
                self._add_talk(entry)

    def _add_talk(self, entry: events.Entry) -> None:
        match entry.event:
            case events.UserSpoke(text=text, images=images, turn=turn):
                seen = tuple(form_of(one.mime, data) for one in images if (data := self._read(one.blob)) is not None)
                self._add(entry.seq, Prompt(text=clean_text(text), images=seen), turn)
            case events.ModelReplied(text=text, model=model, turn=turn) as event:
                self.models.append(presentable_line(model))
                said = remove_code(event)
                self._last_words[turn] = text
                if said.strip():
                    self._add(entry.seq, Answer(text=clean_text(said)), turn)
            case events.TurnEnded(text=text, turn=turn):
                if text.strip() and text != self._last_words.get(turn):
                    self._add(entry.seq, Answer(text=clean_text(text)), turn)
            case events.TurnFailed(error=error, turn=turn):
                self.add_note(entry, "failed", error, turn)
            case events.TurnInterrupted(reason=reason, turn=turn):
                self.add_note(entry, "interrupted", reason, turn)
            case _:
                pass

    def _add(self, key: object, item: Item, turn: events.TurnId | None) -> None:
        self._items[key] = item
        # The text of a forgotten turn is left out of the export. Its cells stay and say whether they were undone.
        if turn is not None and not isinstance(item, Cell | Step):
            self._turns[key] = turn

    def add_note(self, entry: events.Entry, label: str, text: str, turn: events.TurnId | None = None) -> None:
        self._add(entry.seq, Note(label=label, text=clean_text(text)), turn)

    def _add_action(self, event: events.ActionProposed) -> None:
        match event.action:
            case events.RunCell(code=code):
                item = Cell(code=clean_code(code), by_user=event.by == "user", uses_servers=bool(_SERVERS.search(code)))
            case events.CallTool(tool=tool, args=args) as call:
                about = next((call.given[name] for name in _TELLING if call.given.get(name)), None)
                item = Step(
                    tool=presentable_line(tool),
                    args=clean_text(events.plain_json(args)),
                    about=presentable_line(first_line(str(about), 100)) if about else "",
                )
        if event.parent is not None and event.parent in self._items:
            self._parents[event.id] = event.parent
        self._add(event.id, item, event.turn)

    def _update_action(self, event: events.ActionStarted | events.ActionDenied | events.ActionFinished) -> None:
        match self._items.get(event.id), event:
            case Cell() | Step() as item, events.ActionStarted(cell=number):
                standing = "undone" if number is not None and number in self._undone else "kept"
                more = {"number": number} if isinstance(item, Cell) else {}
                self._items[event.id] = replace(item, standing=standing, **more)
            case Cell() as item, events.ActionDenied(reason=reason):
                self._items[event.id] = replace(item, why=clean_text(reason))
            case Step() as item, events.ActionDenied(reason=reason):
                self._items[event.id] = replace(item, text=clean_text(reason), outcome="denied")
            case Step() as item, events.ActionFinished(outcome=outcome):
                self._displays += len(event.displays)
                self._end_step(event.id, replace(item, outcome=outcome, text=clean_text(self._whole(event))))
            case Cell() as item, events.ActionFinished():
                self._items[event.id] = self._finish_cell(item, event)
            case _, events.ActionFinished():
                self._displays += len(event.displays)
            case _:
                pass

    def _end_step(self, id_: events.ActionId, step: Step) -> None:
        """Finish a call; a call made by a cell moves into that cell."""
        parent = self._items.get(self._parents[id_]) if id_ in self._parents else None
        if isinstance(parent, Cell):
            del self._items[id_]
            if step.tool != _ANSWER:  # its text is the turn's answer
                runs = runs_in(step.text) if step.tool == START else ()
                lines = (f"sub-agent {run['line']}: {run.get('answer', '')}" for run in runs)
                notices = (*parent.notices, *lines)
                self._items[self._parents[id_]] = replace(parent, calls=(*parent.calls, step), notices=notices)
        else:
            self._items[id_] = step

    def _finish_cell(self, cell: Cell, event: events.ActionFinished) -> Cell:
        raw = [self._read_display(display) for display in event.displays]
        words = [describe_display(Display(mime=forms)) for forms in raw]
        split = split_observation(self._whole(event), value=event.value, error=event.error, shown=words)
        shown = [show_forms(number, forms) for number, forms in enumerate(raw, self._displays + 1)]
        self._displays += len(raw)
        # A last expression with forms besides text is also the last display.
        plain = raw[-1].get("text/plain") if raw else None
        is_value = plain is not None and plain.decode("utf-8", "replace") == event.value
        result = shown[-1] if is_value else None
        why = cell.why or (clean_text(event.observation) if event.outcome in ("denied", "not_run") else "")
        return replace(
            cell,
            outcome=event.outcome,
            why=why,
            stdout=clean_text("" if why else split.stdout),
            stderr=clean_text(split.stderr),
            notices=(*cell.notices, *map(clean_text, split.notices)),
            value=None if event.value is None else clean_text(event.value),
            error=None if event.error is None else clean_text(event.error),
            result=result,
            displays=tuple(shown[:-1] if result else shown),
            files=tuple(presentable_line(f"{change.how} {change.path}") for change in event.files),
            took_s=event.duration_s,
        )

    def _whole(self, event: events.ActionFinished) -> str:
        """Return the whole output, from the blob if it was too long for the event."""
        data = self._read(event.blobs[0]) if event.blobs else None
        return event.observation if data is None else data.decode("utf-8", "replace")

    def _read(self, id_: events.BlobId) -> bytes | None:
        try:
            return self._blob(id_)
        except events.PinfoldError:
            return None

    def _read_display(self, display: events.DisplayRef) -> dict[str, bytes]:
        # Pinfold records no other MIME types, but an imported log can hold them.
        known = {mime: self._read(id_) for mime, id_ in display.mime.items() if _MIME.fullmatch(mime)}
        return {mime: data for mime, data in known.items() if data is not None}
