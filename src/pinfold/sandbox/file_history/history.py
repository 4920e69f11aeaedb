"""Which states there were, what led from one to the next, and what a workspace must be to be at one of them. No disk.

States form a tree: a cell grows a new one from where the workspace is. Each keeps only how it differs from its parent, in
two steps: what the user changed before the cell ran, and what changed while it ran.

The user's changes go along wherever one goes. A state knows what the user did until it was made, or until it was last left
for another: going there, only what the user changed later than that stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from pinfold.sandbox.file_history.entries import Delta, Entry, Folder, above, digests, whole


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
