"""The interface between a session and its file guards: the calls, the mounts that guards ask for, and their reports."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field

from pinfold.sandbox.guards.guarded_paths import mountable, stamp_of
from pinfold.sandbox.guards.named_files import AutorunRule
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.text import join_names

ADVICE = "look at it before you use it"
_NAMED = 8
"""Most paths that one line names."""


class WorkspaceGuard:
    """What a session calls on its guard. `names`: names with events, from the file history; None without one."""

    fd: int | None = None
    """Readable when `on_names_changed` should be called; None if the guard checks only before and after cells."""

    @property
    def sees_names(self) -> bool:
        """True if the guard sees all new names itself."""
        return True

    def before(self, names: Names | None = NOTHING) -> None:
        """Call before a cell runs: what differs now is not the cell's doing."""

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        """Call when the cell has ended. Put back what is guarded; return a line on each, for the model and the user."""
        raise NotImplementedError

    def allow(self, path: str) -> None:
        """Accept a change of this path by the host, which the user has approved, before the next cell runs."""

    @property
    def fought(self) -> str | None:
        """A path that is changed again each time it is put back, so the session's processes must end; else None."""

    def settle(self, names: Names | None = NOTHING) -> tuple[str, ...]:  # noqa: ARG002
        """Call when no process of the session runs any more: put back all that differs, and report what cannot be."""
        return ()

    def final_notices(self) -> tuple[str, ...]:
        """Return what the user must know when the session has ended."""
        return ()

    @property
    def lost(self) -> tuple[str, ...]:
        """Lines about what could not be put back, so that the workspace is not as promised."""
        return ()

    def on_names_changed(self, names: Names | None = NOTHING) -> None: ...

    def close(self) -> None: ...


class Mounts(Struct, frozen=True, kw_only=True):
    """What the session's init must mount, in this order, each by the path the session sees."""

    masked: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    pinned: list[str] = field(default_factory=list[str])
    protected: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return bool(self.masked or self.pinned or self.protected)


class MountQueue:
    """Collects the mounts that a session needs during a check of its files, and sends them at the end of it."""

    def __init__(self, top: str, shown: str, remount: Callable[[Mounts], None] | None) -> None:
        """`shown`: the path at which the session sees `top`."""
        self._top = top
        self._shown = shown
        self._remount = remount
        self._waiting = Mounts()
        self._sent: dict[str, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def protect(self, path: str) -> None:
        real = mountable(f"{self._top}/{path}", self._top)
        if real is None or (sign := stamp_of(real)) == (0, 0):
            return
        place = self._shown + real[len(self._top) :]
        if self._sent.get(place) != sign:
            self._sent[place] = sign
            if place not in self._waiting.protected:
                self._waiting.protected.append(place)

    def pin(self, path: str, kept: Iterable[str]) -> None:
        """Queue a git folder. What is protected in it must be mounted again afterwards."""
        self._waiting.pinned.append(f"{self._shown}/{path}")
        for name in kept:
            self._sent.pop(f"{self._shown}/{name}", None)

    def mask(self, path: str, inode: tuple[int, int]) -> None:
        self._waiting.masked.append((f"{self._shown}/{path}", *inode))

    def send(self, *, is_midway: bool) -> None:
        """`is_midway`: a cell is running, so only masks are sent."""
        mounts, self._waiting = self._waiting, Mounts()
        if is_midway:
            self._waiting = Mounts(pinned=mounts.pinned, protected=mounts.protected)
            mounts = Mounts(masked=mounts.masked)
        if mounts and self._remount:
            self._remount(mounts)


class GuardReport:
    """Collects a line for each path put back or reported, and the notices for the end of the session."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.told: dict[str, AutorunRule] = {}
        """Changed paths that a program obeys and that were left as they are."""
        self.taken: set[str] = set()
        """New obeyed paths that count as the user's, because no process of the session ran when they were made."""
        self.lost: dict[str, str] = {}
        """Paths that are not as promised, with the line that says so."""

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
            lines.append(f"Changed in this session; other programs act on these files: {join_names(told, _NAMED)}.")
        if self.taken:
            lines.append(
                f"Made while no cell ran, so treated as your changes: {join_names(sorted(self.taken), _NAMED)}."
            )
        return tuple(lines)


class FileGuards(WorkspaceGuard):
    """Several guards as one. The first guards the workspace: only it gets names from the file history, and only its
    lines have paths relative to its folder."""

    def __init__(self, guards: Mapping[str, WorkspaceGuard]) -> None:
        """`guards`: each guard by the path of its folder."""
        self._guards = guards
        self._workspace = next(iter(guards), "")
        self._poll = select.epoll()
        self.fd = self._poll.fileno()
        for guard in self._guards.values():
            if guard.fd is not None:
                self._poll.register(guard.fd, select.EPOLLIN)

    def before(self, names: Names | None = NOTHING) -> None:
        for guard, told in self._each(names):
            guard.before(told)

    def on_names_changed(self, names: Names | None = NOTHING) -> None:
        for guard, told in self._each(names):
            guard.on_names_changed(told)

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        return self._prefix([guard.after(told) for guard, told in self._each(names)])

    def allow(self, path: str) -> None:
        for guard in self._guards.values():
            guard.allow(path)

    @property
    def sees_names(self) -> bool:
        return self._guards[self._workspace].sees_names

    @property
    def fought(self) -> str | None:
        return next((guard.fought for guard in self._guards.values() if guard.fought), None)

    def settle(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        return self._prefix([guard.settle(told) for guard, told in self._each(names)])

    def final_notices(self) -> tuple[str, ...]:
        return self._prefix([guard.final_notices() for guard in self._guards.values()], "In {}: ")

    @property
    def lost(self) -> tuple[str, ...]:
        return self._prefix([guard.lost for guard in self._guards.values()])

    def close(self) -> None:
        self._poll.close()
        for guard in self._guards.values():
            guard.close()

    def _each(self, names: Names | None) -> Iterator[tuple[WorkspaceGuard, Names | None]]:
        """Yield each guard with its names: None for other folders, as the file history covers only the workspace."""
        for path, guard in self._guards.items():
            yield guard, names if path == self._workspace or names is NOTHING else None

    def _prefix(self, said: list[tuple[str, ...]], words: str = "{}/") -> tuple[str, ...]:
        starts = ("" if path == self._workspace else words.format(path) for path in self._guards)
        return tuple(start + line for start, lines in zip(starts, said, strict=True) for line in lines)
