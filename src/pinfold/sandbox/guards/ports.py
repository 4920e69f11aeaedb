"""What a session and its keeper need of each other: what is asked of a keeper, what it wants mounted, what it has to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field

from pinfold.sandbox.guards.autorun_files import Row
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.text import join_names

ADVICE = "look at it before you use it"
_NAMED = 8
"""Paths in one line."""


class WorkspaceGuard(Protocol):
    """What a session asks of its keeper. `names`: what the history of the files saw happen; None where there is none."""

    def before(self, names: Names | None = NOTHING) -> None:
        """A cell is about to run: what differs now was not its doing."""
        ...

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        """It has ended: everything guarded is as before. One line for each thing put back, for the model and the user."""
        ...

    def allow(self, path: str) -> None:
        """The host is about to change this, as the user agreed, before the next cell runs."""
        ...

    @property
    def sees_names(self) -> bool:
        """It needs nobody to tell it names."""
        ...

    @property
    def fought(self) -> str | None:
        """Something that does not stay as it was put back: whatever runs in the session must end."""
        ...

    def settle(self) -> tuple[str, ...]:
        """Nothing of the session runs any more: put back what was fought over, and say what cannot be."""
        ...

    def settle_all(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        """As `settle`, at the end of the session, for everything."""
        ...

    def final_notices(self) -> tuple[str, ...]:
        """What the user must know when the session has ended."""
        ...

    @property
    def lost(self) -> tuple[str, ...]:
        """What could not be put back: the workspace is not as promised."""
        ...

    @property
    def fd(self) -> int | None:
        """Readable when `noticed` should be called; None: only cells are looked at."""
        ...

    def on_names_changed(self, names: Names | None = NOTHING) -> None: ...

    def close(self) -> None: ...


class Mounts(Struct, frozen=True, kw_only=True):
    """What the session's init is to mount, in this order, each by the path the session sees."""

    masked: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    pinned: list[str] = field(default_factory=list[str])
    protected: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return bool(self.masked or self.pinned or self.protected)


class GuardReport:
    """A line for each thing put back or told, and what the user must know in the end."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.told: dict[str, Row] = {}
        """Left as it is, though a program obeys it."""
        self.taken: set[str] = set()
        """New and obeyed, made while nothing of the session ran: the user's."""
        self.lost: dict[str, str] = {}
        """What is not as promised, with the line that says so."""

    def say(self, line: str) -> None:
        if line not in self._lines:
            self._lines.append(line)

    def lose(self, path: str, words: str) -> None:
        if path not in self.lost:
            self.lost[path] = f"{path} {words}; {ADVICE}"
            self.say(self.lost[path])

    def take_lines(self) -> tuple[str, ...]:
        lines, self._lines = self._lines, []
        return tuple(lines)

    def final_notices(self, is_there: Callable[[str], bool]) -> tuple[str, ...]:
        lines = list(self.lost.values())
        told = [f"{path} ({row.program})" for path, row in self.told.items() if is_there(path)]
        if told:
            lines.append(f"Changed in this session, and obeyed by other programs of yours: {join_names(told, _NAMED)}.")
        if self.taken:
            lines.append(f"Made while no cell ran, and taken as your own: {join_names(sorted(self.taken), _NAMED)}.")
        return tuple(lines)
