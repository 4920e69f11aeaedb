"""Which states there were, what led from one to the next, and what a workspace must be to be at one of them. No disk.

States form a tree: a cell grows a new one from where the workspace is. Each keeps only how it differs from its parent, in
two steps: what the user changed before the cell ran, and what changed while it ran.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pinfold.sandbox.versions.entries import Delta, Entry, Folder, above, digests, whole


@dataclass(slots=True)
class State:
    parent: int | None
    user: Delta = field(default_factory=Delta)
    """What the user changed after the parent and before the cell."""
    cell: Delta = field(default_factory=Delta)


@dataclass(frozen=True, slots=True)
class Target:
    """Every path that differs somewhere on the way."""

    state: dict[str, Entry | None]
    """As it was after that cell."""
    wanted: dict[str, Entry | None]
    """The same, but for what the user has changed since."""

    @property
    def left(self) -> list[str]:
        return sorted(path for path, entry in self.wanted.items() if self.state.get(path, entry) != entry)


_Version: TypeAlias = tuple[str, Entry | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    delta: Delta = field(kw_only=False)
    is_users: bool
    is_back: bool

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
        self.user: Delta = {}
        """What the user changed since the state at the head."""
        self._departed: dict[int, Delta] = {}
        """What the user had changed since a state when it was left by going elsewhere: coming back brings it back."""

    def changed_by_user(self, delta: Delta) -> None:
        """A path that is changed back stays in: the user has chosen what it is."""
        for path, (was, now) in delta.items():
            self.user[path] = (self.user[path][0] if path in self.user else was, now)

    def grow(self, number: int, cell: Delta) -> None:
        self._departed.pop(self.head, None)
        self.states[number] = State(self.head, self.user, cell)
        self.head, self.last, self.user = number, number, {}

    def arrive(self, number: int, user: Delta) -> None:
        """The workspace is now at this state, but for what is the user's."""
        self._departed.pop(number, None)
        if self.head != number:
            self._departed[self.head] = self.user
        self.head, self.user = number, user

    def target(self, to: int, fresh: Collection[str], now: Mapping[str, Entry]) -> Target:
        """What the workspace, which is `now`, must become. `fresh`: what the user changed after we last looked.

        Going back, everything stops at the user's last change of it, unless that very version is part of where we go.
        """
        steps = self._steps(to)
        paths: dict[str, list[str]] = {}
        for path in dict.fromkeys(path for step in steps for path in step.delta):
            paths.setdefault(whole(path), []).append(path)

        def versions(step: _Step, at: dict[str, Entry | None]) -> Iterator[tuple[str, frozenset[_Version]]]:
            """Of all the step changes, as it is at one point of the way."""
            for thing in {whole(path) for path in step.delta}:
                yield thing, frozenset((path, at[path]) for path in paths[thing])

        state = {path: now.get(path) for of_one in paths.values() for path in of_one}
        wanted = dict(state)
        ahead: set[tuple[str, frozenset[_Version]]] = set()
        for step in steps:
            step.take(state)
            if step.is_users and not step.is_back:
                ahead.update(versions(step, state))
        stopped = {whole(path) for path in fresh}
        passed: set[str] = set()
        for step in steps:
            if step.is_users and step.is_back:
                for version in versions(step, wanted):
                    (passed if version[0] in passed or version in ahead else stopped).add(version[0])
            step.take(wanted, without=stopped)
        for path, (old, _) in self._departed.get(to, {}).items():
            state[path] = old
        _fit(wanted, stopped, now)
        return Target(state, wanted)

    def _steps(self, to: int) -> list[_Step]:
        """Back to the last common state, then forth."""
        here, there = [*self._line(self.head)], [*self._line(to)]
        steps = [_Step(self.user, is_users=True, is_back=True)]
        for number in here:
            if number not in there:
                state = self.states[number]
                steps.append(_Step(state.cell, is_users=False, is_back=True))
                steps.append(_Step(state.user, is_users=True, is_back=True))
        for number in reversed(there):
            if number not in here:
                state = self.states[number]
                steps.append(_Step(state.user, is_users=True, is_back=False))
                steps.append(_Step(state.cell, is_users=False, is_back=False))
        return [*steps, _Step(self._departed.get(to, {}), is_users=True, is_back=False)]

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
        self.states[root] = State(None)
        return dropped

    def digests(self) -> Iterator[str]:
        """Of every content that some state needs."""
        for state in self.states.values():
            yield from digests(state.user)
            yield from digests(state.cell)
        for delta in (self.user, *self._departed.values()):
            yield from digests(delta)

    def _line(self, number: int) -> Iterator[int]:
        """The state and those it grew from, back to the first."""
        at: int | None = number
        while at is not None:
            yield at
            at = self.states[at].parent


def _fit(wanted: dict[str, Entry | None], stopped: set[str], now: Mapping[str, Entry]) -> None:
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
        if wanted[path] is not None and not all(
            isinstance(will_be(folder), Folder) for folder in above(path)
        ):
            wanted[path] = None
