"""The history of a session by turns and cells: for display, and for choosing where to rewind to."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pinfold import events
from pinfold.app.errors import ConfigError
from pinfold.app.ownership.owner import Link
from pinfold.app.session.live_session import LiveSession
from pinfold.app.storage.session_store import SessionStore, read_entries
from pinfold.engine import State, fold
from pinfold.text import join_names

_MOVING = (events.UserSpoke, events.ModelCalled, events.ActionStarted)


class CellRecord(Struct, frozen=True, kw_only=True):
    """A cell, or a tool call that undo treats like a cell."""

    number: int
    id: events.ActionId
    code: str
    """The source; for a call, its tool and arguments."""
    turn: events.TurnId | None = None
    outcome: events.Result | None = None
    """None while it runs."""
    undone: bool = False
    files: tuple[events.FileChange, ...] = ()
    """Changes that the cell and its calls made to workspace files; the first ones if there are many."""
    more_files: int = 0
    """Number of further changes."""
    displays: tuple[events.DisplayRef, ...] = ()


class TurnRecord(Struct, frozen=True, kw_only=True):
    number: int
    """Counted from 1."""
    id: events.TurnId
    text: str
    at: str
    before: int
    """The last cell before the turn; 0 if none."""
    cells: tuple[int, ...] = ()
    """The turn's cells that are not undone."""
    forgotten: bool = False
    """True if the chat was rewound to before this turn."""


class OutputRecord(Struct, frozen=True, kw_only=True):
    """The output of an action."""

    name: str
    """`cell 3`, or the tool's name."""
    text: str
    """The output as the model saw it."""
    blob: events.BlobId | None = None
    """The whole output, if it is longer than `text`."""


class ModelBill(Struct, frozen=True, kw_only=True):
    """Replies, usage and cost of one model."""

    model: str
    replies: int = 0
    usage: events.Usage = events.Usage()
    cost: float | None = 0.0
    """None once any reply had no known price."""


class SessionHistory(Struct, frozen=True, kw_only=True):
    session: events.SessionId
    state: State
    turns: tuple[TurnRecord, ...]
    cells: tuple[CellRecord, ...]
    outputs: tuple[OutputRecord, ...]
    bills: tuple[ModelBill, ...]
    path: tuple[int, ...]
    """The cells whose effects are in force."""
    is_busy: bool
    """True if the log shows a running turn or cell."""

    def cell(self, number: int) -> CellRecord | None:
        return next((cell for cell in self.cells if cell.number == number), None)

    def turn(self, number: int) -> TurnRecord:
        """Return a turn that can be rewound to; -1 is the last. Raises ConfigError."""
        turns = {one.number: one for one in self.turns if not one.forgotten}
        wanted = max(turns) if number == -1 and turns else number
        if wanted not in turns:
            there = f"there are {join_names([*map(str, turns)], 20)}" if turns else "nothing was said yet"
            raise ConfigError(f"there is no turn {number} to go back to; {there}")
        return turns[wanted]

    @property
    def last_cell(self) -> str:
        """The number of the last cell, in words."""
        return f"the last one is {self.cells[-1].number}" if self.cells else "nothing was run yet"

    def changes_of(self, number: int) -> tuple[events.FileChange, ...]:
        cell = self.cell(number)
        return net_changes(cell.files) if cell else ()

    def changes(self) -> tuple[events.FileChange, ...]:
        """Return one net change per file, over all cells in `path`."""
        return net_changes(one for cell in self.cells if cell.number in self.path for one in cell.files)

    @property
    def more_files(self) -> int:
        """Number of changes that were counted but not listed."""
        return sum(cell.more_files for cell in self.cells if not cell.undone)

    def files_of(self, cells: Container[int]) -> tuple[str, ...]:
        """Return the paths that these cells changed."""
        return tuple(sorted({one.path for cell in self.cells if cell.number in cells for one in cell.files}))

    @property
    def usage(self) -> events.Usage:
        return sum((bill.usage for bill in self.bills), events.Usage())

    @property
    def cost(self) -> float | None:
        """None if any part is unknown."""
        known = [bill.cost for bill in self.bills if bill.cost is not None]
        return sum(known) if len(known) == len(self.bills) else None


def net_changes(changes: Iterable[events.FileChange]) -> tuple[events.FileChange, ...]:
    """Merge the changes of each file into one, from its first state to its last; sorted by path."""
    first: dict[str, events.FileChange] = {}
    last: dict[str, events.FileChange] = {}
    for change in changes:
        first.setdefault(change.path, change)
        last[change.path] = change
    found: list[events.FileChange] = []
    for path in sorted(first):
        was, now = first[path], last[path]
        if (was.how == "added" and now.how == "removed") or (was.before and was.before == now.after):
            continue
        how = "added" if was.how == "added" else "removed" if now.how == "removed" else "changed"
        found.append(events.FileChange(path=path, how=how, before=was.before, after=now.after))
    return tuple(found)


def entries_of(link: Link, after: int = 0) -> list[events.Entry]:
    """Return the entries after `after`, up to now, of a local or remote session. Raises PinfoldError."""
    if not isinstance(link, LiveSession):
        return read_entries(SessionStore().folder_of(link.session), link.session, after)
    # If there is a file, open it anew: this may be another thread than the one that owns the log's connection.
    folder = link.log.folder
    return list(link.log.read(after)) if folder is None else read_entries(folder, link.session, after)


def entries_on_disk(session: events.SessionId) -> list[events.Entry]:
    """Raises PinfoldError."""
    return read_entries(SessionStore().folder_of(session), session)


def build_history(session: events.SessionId, entries: Sequence[events.Entry]) -> SessionHistory:
    builder = HistoryBuilder(session)
    builder.add(entries)
    return builder.build(fold(entries))


class HistoryBuilder:
    """Builds the history of a session event by event."""

    def __init__(self, session: events.SessionId) -> None:
        self.seq = 0
        """Sequence number of the last event added."""
        self._session = session
        self._has_moved = False
        """True if anything ran since the session was opened; an open turn from before that was cut off."""
        self._proposed: dict[events.ActionId, events.ActionProposed] = {}
        self._numbers: dict[events.ActionId, int] = {}
        """The number of the cell that each action is or belongs to."""
        self._forgotten: set[events.TurnId] = set()
        self._last = 0
        """Number of the last cell."""
        self.spoken: list[tuple[events.UserSpoke, str, int]] = []
        """Prompts, each with its time and the last cell before it."""
        self.cells: dict[int, CellRecord] = {}
        self.outputs: list[OutputRecord] = []
        self.bills: dict[str, ModelBill] = {}

    def add_new(self, live: LiveSession) -> None:
        """Add the events since the last call. Raises PinfoldError."""
        self.add(entries_of(live, self.seq))

    def add(self, entries: Sequence[events.Entry]) -> None:
        for entry in entries:
            self._add_entry(entry)
            self.seq = entry.seq

    def build(self, state: State) -> SessionHistory:
        """Return the history; `state` is the fold of the same events."""
        self.cells = {cell.number: replace(cell, undone=cell.number in state.undone) for cell in self.cells.values()}
        is_running = any(item.stage == "started" for item in state.open.values())
        return SessionHistory(
            session=self._session,
            state=state,
            turns=tuple(self.turns()),
            cells=tuple(self.cells.values()),
            outputs=tuple(self.outputs),
            bills=tuple(self.bills.values()),
            path=state.path,
            is_busy=is_running or (self._has_moved and state.turn is not None),
        )

    def _add_entry(self, entry: events.Entry) -> None:
        if isinstance(entry.event, (events.SessionOpened, *_MOVING)):
            self._has_moved = isinstance(entry.event, _MOVING)
        match entry.event:
            case events.UserSpoke() as event:
                self.spoken.append((event, entry.at, self._last))
            case events.SessionRewound(forgotten=forgotten, recalled=recalled):
                self._forgotten = (self._forgotten | {*forgotten}) - {*recalled}
            case events.ModelReplied(model=model, usage=usage, cost=cost):
                self._add_usage(model, usage, cost)
            case events.ActionProposed() as event:
                self._proposed[event.id] = event
            case events.ActionStarted(id=id_, cell=int(number)) if id_ in self._proposed:
                self._on_started(self._proposed[id_], number)
            case events.ActionFinished() as event:
                self._on_finished(event)
            case _:
                pass

    def _on_started(self, proposed: events.ActionProposed, number: int) -> None:
        self._numbers[proposed.id] = number
        if number in self.cells:
            return
        self._last = number
        self.cells[number] = CellRecord(number=number, id=proposed.id, code=_code(proposed), turn=proposed.turn)

    def _on_finished(self, event: events.ActionFinished) -> None:
        if event.usage is not None:
            self._add_usage("asked by tools", event.usage, event.cost)
        proposed = self._proposed.get(event.id)
        if proposed is None:
            return
        number = self._numbers.get(event.id)
        if number is not None:
            cell = self.cells[number]
            if cell.id == event.id:
                cell = replace(cell, outcome=event.outcome, displays=event.displays)
            self.cells[cell.number] = replace(
                cell, files=(*cell.files, *event.files), more_files=cell.more_files + event.more_files
            )
        if proposed.parent is None:
            called = proposed.action.tool if isinstance(proposed.action, events.CallTool) else "cell"
            name = called if number is None else f"cell {number}"
            blob = event.blobs[0] if event.blobs else None
            self.outputs.append(OutputRecord(name=name, text=event.observation, blob=blob))

    def _add_usage(self, model: str, usage: events.Usage, cost: float | None) -> None:
        bill = self.bills.get(model, ModelBill(model=model))
        total = None if cost is None or bill.cost is None else bill.cost + cost
        self.bills[model] = replace(bill, replies=bill.replies + 1, usage=bill.usage + usage, cost=total)

    def turns(self) -> Iterator[TurnRecord]:
        cells: dict[events.TurnId | None, list[int]] = {}
        for cell in self.cells.values():
            if not cell.undone:
                cells.setdefault(cell.turn, []).append(cell.number)
        for number, (event, at, before) in enumerate(self.spoken, 1):
            yield TurnRecord(
                number=number,
                id=event.turn,
                text=event.text,
                at=at,
                before=before,
                cells=tuple(cells.get(event.turn, ())),
                forgotten=event.turn in self._forgotten,
            )


def _code(proposed: events.ActionProposed) -> str:
    match proposed.action:
        case events.RunCell(code=code):
            return code
        case events.CallTool(tool=tool, args=args):
            return f"{tool} {events.plain_json(args)}"
