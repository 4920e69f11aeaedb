"""The tree of the workspace's states, what restoring one of them takes, and the journal that records all this on disk.

A cell adds a new state below the one the workspace is at. Each state keeps only its differences from its parent, in two
steps: what the user changed before the cell ran, and what changed while it ran.

Restoring a state keeps the user's changes that are newer than it. A state includes what the user changed until it was
made, or until it was last left for another state; only what the user changed after that stays as it is.

The journal in the store has a line for each thing that happened, so that another process can continue, however the last
one ended. It is written at once but not synced: after a power cut the last lines, or contents, may be missing, which is
detected and reported.
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
    """What the user changed since a state, and the value of `History.count` at the last change of each thing."""

    delta: Delta = field(default_factory=Delta)
    since: dict[str, int] = field(default_factory=dict[str, int])


NOTHING = Users()
"""Shared, so never modified."""


class State(NamedTuple):
    parent: int | None
    made: int = 0
    user: Users = NOTHING
    """What the user changed after the parent and before the cell."""
    cell: Delta = NOTHING.delta


class Target(Struct, frozen=True):
    """What to restore: every path that differs in some state between here and there."""

    state: dict[str, Entry | None]
    """The entries as they were after that cell."""
    wanted: dict[str, Entry | None]
    """The same, except for the user's changes, which stay."""
    since: dict[str, int]
    """The things that the user changed, and when."""

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
        """The highest number any state ever had."""
        self.user = Users()
        """What the user changed since the head."""
        self._departed: dict[int, tuple[int, Users]] = {}
        """For each state left for another: when, and the user's changes since it. Returning restores those changes."""
        self.count = 0
        """A logical clock: each recorded change increments it."""

    @property
    def changed_paths(self) -> int:
        """The number of changed paths, summed over all states."""
        return sum(len(state.cell) + len(state.user.delta) for state in self.states.values())

    def record_user_change(self, delta: Delta) -> None:
        """Add to the user's changes. A path that is changed back stays among them: the user has chosen its content."""
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
        """Record that the workspace is now at this state, except for `user`, the user's changes."""
        self.count += 1
        self._departed.pop(number, None)
        if self.head != number:
            self._departed[self.head] = (self.count, self.user)
        self.head, self.user = number, user

    def target(self, to: int, now: Mapping[str, Entry]) -> Target:
        """Return what the workspace, now `now`, must become. Going back, each thing stops at the user's last change of
        it, unless the state already includes that change."""
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
        """Return the steps back to the last common state, then forward."""
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
        """Forget the oldest state and every state reachable only through it, never the head. Return their numbers."""
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
        """Yield the digest of every content that some state needs."""
        for state in self.states.values():
            yield from digests(state.user.delta)
            yield from digests(state.cell)
        for users in (self.user, *(users for _, users in self._departed.values())):
            yield from digests(users.delta)

    def _line(self, number: int) -> Iterator[int]:
        """Yield the state and its ancestors, back to the first."""
        at: int | None = number
        while at is not None:
            yield at
            at = self.states[at].parent


def _fit(wanted: dict[str, Entry | None], stopped: Collection[str], now: Mapping[str, Entry]) -> None:
    """Make `wanted` consistent: keep folders that hold the user's changes, and put nothing below a non-folder."""

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
"""Entries on one line of the start: few, so that encoding a line does not hold up other threads for long."""
_Said: TypeAlias = list[Any] | None
_KINDS: dict[str, Callable[..., Entry]] = {kind.__name__: kind for kind in (File, Folder, Link, Uncovered)}


class JournalState(Struct):
    """What the journal of an earlier owner says."""

    history: History = field(default_factory=History)
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])
    """The stamps of files that have not changed since the start."""
    running: int | None = None
    """The cell that was running when the owner ended."""
    going: int | None = None
    """The state that was being restored when the owner ended."""
    aside: set[str] = field(default_factory=set[str])

    def recall_contents(self, digests: Mapping[Stamp, str]) -> None:
        """Fill in the digests of unread files from the shared contents."""
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
    """The journal file. Lines wait in memory until `write_start`, which may be slow, and `go_on` were called.

    Without a path nothing is written, because no other process will continue.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd: int | None = None
        self._start: tuple[Mapping[str, Entry], Mapping[str, Stamp]] = ({}, {})
        self._waiting: list[list[Any]] = []
        self._is_over = path is None
        """True if nothing is written, either from the start or because writing failed."""

    def load(self) -> JournalState | None:
        """Read the journal and append to it from now on. None if it is damaged or its start is incomplete."""
        if self._path is None:
            return None
        try:
            lines = self._path.read_text(encoding="ascii").splitlines(keepends=True)
            if lines and not lines[-1].endswith("\n"):  # the write of this line was cut off
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
        """Write the state given to `start`. May be called in any thread."""
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
        self._write("user", _encode_delta(delta))

    def record_found(self, delta: Delta) -> None:
        """Record changes whose author is unknown."""
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

    def _write(self, *line: object) -> None:
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
        """Remove the journal after a failed write, as on a full disk: another process cannot use one with a gap."""
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
    """Return the kind of the entry, followed by its fields in order."""
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
