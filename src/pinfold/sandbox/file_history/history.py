"""Which states there were, what led from one to the next, and what a workspace must be to be at one of them.

States form a tree: a cell grows a new one from where the workspace is. Each keeps only how it differs from its parent, in
two steps: what the user changed before the cell ran, and what changed while it ran.

The user's changes go along wherever one goes. A state knows what the user did until it was made, or until it was last left
for another: going there, only what the user changed later than that stays as it is.

The journal says line by line in the store what happened, so that another process can go on where the last one ended, however
it ended. It is written as it happens and not synced: after a power cut the last lines, or contents, may be missing, which is
found out and said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from msgspec import Struct, field

from pinfold.sandbox.file_history.entries import Delta, Entry, File, Folder, Link, Uncovered, above, digests, whole
from pinfold.sandbox.kernel.safe_files import Stamp


class Users(Struct, frozen=True):
    """What the user changed since a state, and when each thing last: by the count of what happened."""

    delta: Delta = field(default_factory=Delta)
    since: dict[str, int] = field(default_factory=dict[str, int])


NOTHING = Users()
"""Never added to."""


class State(NamedTuple):
    parent: int | None
    made: int = 0
    user: Users = NOTHING
    """What the user changed after the parent and before the cell."""
    cell: Delta = NOTHING.delta


class Target(Struct, frozen=True):
    """Every path that differs somewhere on the way."""

    state: dict[str, Entry | None]
    """As it was after that cell."""
    wanted: dict[str, Entry | None]
    """The same, but for what is the user's."""
    since: dict[str, int]
    """Which is this, and from when."""

    @property
    def left(self) -> list[str]:
        differing = {path for path, entry in self.wanted.items() if self.state.get(path, entry) != entry}
        return sorted({whole(path) for path in differing})


class _Step(Struct, frozen=True):
    delta: Delta
    is_back: bool
    since: dict[str, int] = field(default_factory=dict[str, int])

    def take(self, paths: dict[str, Entry | None], *, without: Collection[str] = ()) -> None:
        for path, (old, new) in self.delta.items():
            if whole(path) not in without:
                paths[path] = old if self.is_back else new


class History:
    def __init__(self) -> None:
        self.states: dict[int, State] = {0: State(None)}
        self.head = 0
        self.last = 0
        """The highest number a state ever had."""
        self.user = Users()
        """Since the state at the head."""
        self._departed: dict[int, tuple[int, Users]] = {}
        """When a state was left for another, and what the user had changed since it: coming back brings it back."""
        self.count = 0
        """Of what happened."""

    @property
    def changed_paths(self) -> int:
        """Of all states together."""
        return sum(len(state.cell) + len(state.user.delta) for state in self.states.values())

    def record_user_change(self, delta: Delta) -> None:
        """A path that is changed back stays in: the user has chosen what it is."""
        if delta:
            self.count += 1
        for path, (was, now) in delta.items():
            self.user.delta[path] = (self.user.delta[path][0] if path in self.user.delta else was, now)
            self.user.since[whole(path)] = self.count

    def grow(self, number: int, cell: Delta) -> None:
        self.count += 1
        self._departed.pop(self.head, None)
        user = NOTHING
        if self.user.delta:
            user, self.user = self.user, Users()
        self.states[number] = State(self.head, self.count, user, cell)
        self.head = self.last = number

    def arrive(self, number: int, user: Users) -> None:
        """The workspace is now at this state, but for what is the user's."""
        self.count += 1
        self._departed.pop(number, None)
        if self.head != number:
            self._departed[self.head] = (self.count, self.user)
        self.head, self.user = number, user

    def target(self, to: int, now: Mapping[str, Entry]) -> Target:
        """What the workspace, which is `now`, must become. Going back, each thing stops at the user's last change of it,
        unless the state knows of that."""
        knows_until, departed = self._departed.get(to, (self.states[to].made, Users()))
        steps = self._steps(to)
        state = {path: now.get(path) for step in steps for path in (*step.delta, *departed.delta)}
        wanted = dict(state)
        stopped: dict[str, int] = {}
        for step in steps:
            step.take(state)
            stopped.update((thing, when) for thing, when in step.since.items() if when > knows_until)
            step.take(wanted, without=stopped)
        _Step(departed.delta, is_back=False).take(wanted, without=stopped)
        _fit(wanted, stopped, now)
        return Target(state, wanted, departed.since | stopped)

    def _steps(self, to: int) -> list[_Step]:
        """Back to the last common state, then forth."""
        here, there = [*self._line(self.head)], [*self._line(to)]
        steps = [_Step(self.user.delta, is_back=True, since=self.user.since)]
        for number in here:
            if number not in there:
                state = self.states[number]
                steps.append(_Step(state.cell, is_back=True))
                steps.append(_Step(state.user.delta, is_back=True, since=state.user.since))
        for number in reversed(there):
            if number not in here:
                state = self.states[number]
                steps.append(_Step(state.user.delta, is_back=False))
                steps.append(_Step(state.cell, is_back=False))
        return steps

    def drop_oldest(self) -> list[int]:
        """Forgets the state furthest back, and every state that can be reached through it only. Never the head."""
        line = [*self._line(self.head)]
        if len(line) < 2:
            return []
        root = line[-2]
        kept = {number for number in self.states if root in self._line(number)}
        dropped = [number for number in self.states if number not in kept]
        for number in dropped:
            del self.states[number]
            self._departed.pop(number, None)
        self.states[root] = State(None, self.states[root].made)
        return dropped

    def digests(self) -> Iterator[str]:
        """Of every content that some state needs."""
        for state in self.states.values():
            yield from digests(state.user.delta)
            yield from digests(state.cell)
        for users in (self.user, *(users for _, users in self._departed.values())):
            yield from digests(users.delta)

    def _line(self, number: int) -> Iterator[int]:
        """The state and those it grew from, back to the first."""
        at: int | None = number
        while at is not None:
            yield at
            at = self.states[at].parent


def _fit(wanted: dict[str, Entry | None], stopped: Collection[str], now: Mapping[str, Entry]) -> None:
    """What is the user's keeps the folders it lies in; under what is no folder nothing can be put back."""

    def will_be(path: str) -> Entry | None:
        return wanted[path] if path in wanted else now.get(path)

    for path in stopped:
        if will_be(path) is not None:
            for folder in above(path):
                if not isinstance(will_be(folder), Folder):
                    held = now.get(folder)
                    wanted[folder] = held if isinstance(held, Folder) else now[""]
    for path in sorted(wanted):
        if wanted[path] is not None and not all(isinstance(will_be(folder), Folder) for folder in above(path)):
            wanted[path] = None


_AT_ONCE = 500
"""Entries on one line of the start, so that other threads do not wait long for this one."""
_Said: TypeAlias = list[Any] | None
_KINDS: dict[str, Callable[..., Entry]] = {kind.__name__: kind for kind in (File, Folder, Link, Uncovered)}


class JournalState(Struct):
    """What an earlier owner has left."""

    history: History = field(default_factory=History)
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])
    """Of what has not changed since the start."""
    running: int | None = None
    """The cell that ran when it ended."""
    going: int | None = None
    """The state it was going to when it ended."""
    aside: set[str] = field(default_factory=set[str])

    def recall_contents(self, digests: Mapping[Stamp, str]) -> None:
        """Those of files that were read, as far as they are shared."""
        for path, stamp in self.stamps.items():
            entry = self.entries.get(path)
            if isinstance(entry, File) and entry.digest is None and stamp in digests:
                self.entries[path] = replace(entry, digest=digests[stamp])

    def change(self, delta: Delta) -> Delta:
        for path, (_, new) in delta.items():
            self.stamps.pop(path, None)
            if new is None:
                self.entries.pop(path, None)
            else:
                self.entries[path] = new
        return delta


class Journal:
    """Until `write_start` and `go_on` were called, which take their time, lines wait in memory.

    With no file nothing is written: no other process will go on.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd: int | None = None
        self._start: tuple[Mapping[str, Entry], Mapping[str, Stamp]] = ({}, {})
        self._waiting: list[list[Any]] = []
        self._is_over = path is None
        """Nothing is written, or nothing any more."""

    def load(self) -> JournalState | None:
        """None: there is no whole start, or it is damaged. Otherwise what is written from now on is added to it."""
        if self._path is None:
            return None
        try:
            lines = self._path.read_text(encoding="ascii").splitlines(keepends=True)
            if lines and not lines[-1].endswith("\n"):  # it was being written
                os.truncate(self._path, sum(map(len, lines[:-1])))
                lines.pop()
            told = _replay(json.loads(line) for line in lines)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if told:
            self._open(self._path)
        return told

    def start(self, entries: Mapping[str, Entry], stamps: Mapping[str, Stamp]) -> None:
        self._start = (entries, stamps)

    def write_start(self) -> None:
        """By any thread."""
        if self._fd is not None or self._path is None:
            return
        entries, stamps = self._start
        paths = list(entries)
        try:
            with self._path.open("w", encoding="ascii") as file:
                for at in range(0, len(paths), _AT_ONCE):
                    some = {it: (_encode_entry(entries[it]), stamps.get(it)) for it in paths[at : at + _AT_ONCE]}
                    file.write(json.dumps(["start", some]) + "\n")
        except OSError:
            self._give_up()

    def go_on(self) -> None:
        if self._fd is None and self._path is not None and not self._is_over:
            self._open(self._path)
            waiting, self._waiting = self._waiting, []
            self._write("started")
            for line in waiting:
                self._write(*line)

    def record_read(self, path: str, entry: Entry) -> None:
        self._write("read", path, _encode_entry(entry))

    def record_user_change(self, delta: Delta) -> None:
        if delta:
            self._write("user", _encode_delta(delta))

    def record_found(self, delta: Delta) -> None:
        """Changes of unknown origin."""
        self._write("found", _encode_delta(delta))

    def record_run(self, cell: int) -> None:
        self._write("runs", cell)

    def record_cell(self, cell: int, delta: Delta) -> None:
        self._write("grows", cell, _encode_delta(delta))

    def record_restore_start(self, to: int) -> None:
        self._write("goes", to)

    def record_restore_end(self, to: int, user: Users, delta: Delta, aside: Collection[str]) -> None:
        self._write("arrives", to, _encode_delta(user.delta), user.since, _encode_delta(delta), sorted(aside))

    def record_drop(self) -> None:
        self._write("drops")

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _write(self, *line: Any) -> None:
        if self._is_over:
            return
        if self._fd is None:
            self._waiting.append(list(line))
            return
        data = json.dumps(line).encode("ascii") + b"\n"
        try:
            is_whole = os.write(self._fd, data) == len(data)
        except OSError:
            is_whole = False
        if not is_whole:
            self._give_up()

    def _give_up(self) -> None:
        """The disk is full: undo goes on here, but another process could not go on with a gap in the story."""
        self._is_over = True
        self.close()
        self._waiting.clear()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()


def _replay(lines: Iterable[list[Any]]) -> JournalState | None:
    told, is_whole = JournalState(), False
    for line in lines:
        match line:
            case ["start", some]:
                told.entries.update((path, _decode_entry(said)) for path, (said, _) in some.items())
                told.stamps.update((path, Stamp(*stamp)) for path, (_, stamp) in some.items() if stamp)
            case ["started"]:
                is_whole = True
            case ["read", path, said]:
                told.entries[path] = _decode_entry(said)
            case ["user", delta]:
                told.history.record_user_change(told.change(_decode_delta(delta)))
            case ["found", delta]:
                told.change(_decode_delta(delta))
            case ["runs", cell]:
                told.running, told.going = cell, None
            case ["grows", cell, delta]:
                told.history.grow(cell, told.change(_decode_delta(delta)))
                told.running = None
            case ["goes", to]:
                told.going = to
            case ["arrives", to, user, since, delta, aside]:
                told.change(_decode_delta(delta))
                told.history.arrive(to, Users(_decode_delta(user), since))
                told.going, told.aside = None, set(aside)
            case ["drops"]:
                told.history.drop_oldest()
            case _:
                raise ValueError(f"{line[:1]} is nothing that was ever written")
    return told if is_whole else None


def _encode_entry(entry: Entry | None) -> _Said:
    """What it is, and its fields in their order."""
    return entry and [type(entry).__name__, *(getattr(entry, one.name) for one in fields(entry))]


def _decode_entry(said: _Said) -> Any:
    if said is None:
        return None
    kind, *values = said
    return _KINDS[kind](*(tuple(cast("list[int]", it)) if isinstance(it, list) else it for it in values))


def _encode_delta(delta: Delta) -> dict[str, tuple[_Said, _Said]]:
    return {path: (_encode_entry(old), _encode_entry(new)) for path, (old, new) in delta.items()}


def _decode_delta(said: dict[str, tuple[_Said, _Said]]) -> Delta:
    return {path: (_decode_entry(old), _decode_entry(new)) for path, (old, new) in said.items()}
