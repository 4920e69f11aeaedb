"""A session that can go back: frozen copies of its process are kept by its init, each the state after one cell.

Cells are numbered once and for all; after an undo the numbers go on. The states that were gone through are a path.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import anyio

from pinfold.sandbox._body import Jailed
from pinfold.sandbox._branch import Branch, BranchBody
from pinfold.sandbox._guest import Death, Guest
from pinfold.sandbox._history import FileHistory, uncovered
from pinfold.sandbox._output import Output, widen
from pinfold.sandbox._session import ASK_STATUSES, GuestSession
from pinfold.sandbox.channel import REFUSAL_BYTES
from pinfold.sandbox.contract import SandboxError, SandboxUnavailable, Session, UndoRefused, What


@dataclass(frozen=True, slots=True, kw_only=True)
class _Undone:
    cells: list[int]
    """What one undo took back."""
    parked: Guest | None
    """Still in the state that was left, where no copy is."""
    files: bool
    """Whether those of the workspace went back as well."""


THREADS = "Threads that ran in this state ({}) are gone: they do not survive going back, and what waits for them will wait."
WAKE_S = 5.0
"""For a copy to answer; one that waits for a thread it does not have never will."""


class UndoableSession(GuestSession):
    """`history`, once it is there, is that of the workspace's files; a session that may not write to them has none."""

    def __init__(
        self, *, history: Callable[[], Awaitable[FileHistory | str]] | None = None, **given: Any
    ) -> None:
        super().__init__(**given)
        self._begin_history = history
        self._history: FileHistory | None = None
        self._number = 0
        """Of the last cell."""
        self._path: list[int] = []
        """The cells whose effects are there, in order."""
        self._undone: list[_Undone] = []
        """For `redo`, the last one last."""
        self._sources: dict[int, str] = {}
        self._branches: list[Branch] = []

    async def undo(self, to: int | None = None, what: What = "all") -> None:
        async with self._lock:
            guest = await self._live_guest()
            length = self._length_after(to)
            if length == len(self._path):
                return
            if what != "variables":
                await self._restore_files(self._path[:length])
            if what == "files":
                return
            await self._done(guest, "idle")  # or the state we leave could not be gone back to
            try:
                parked = await self._go(guest, self._path[:length])
            except UndoRefused:
                if what == "all":
                    await self._restore_files(self._path)
                raise
            self._undone.append(_Undone(cells=self._path[length:], parked=parked, files=what == "all"))
            del self._path[length:]

    async def redo(self) -> None:
        async with self._lock:
            guest = await self._live_guest()
            if not self._undone:
                raise UndoRefused("nothing was undone since the last cell")
            last = self._undone[-1]
            path = [*self._path, *last.cells]
            if last.parked is None:
                await self._go(guest, path)
            else:
                await guest.ended("it was undone")
                self._guest = last.parked
                last.parked.listen()
                self._kept_by(last.parked.keeper)
            self._path = path
            self._undone.pop()
            if last.files:
                await self._restore_files(path)

    async def fork(self) -> Session:
        """A session over the same live data. While it is open, nobody may write to the workspace."""
        async with self._lock:
            guest = await self._live_guest()
            state = self._path[-1] if self._path else 0
            await self._done(guest, "copy", cell=state)
            await self._done(guest, "idle")
            branch = await self._branched(guest, state)
            self._branches.append(branch)
            return branch

    async def keep(self, branch: Session) -> None:
        if not isinstance(branch, Branch) or branch not in self._branches:
            raise UndoRefused("only an open branch of this session can be kept")
        async with self._lock:
            guest = await self._live_guest()
            body = cast("Jailed", guest.body)
            kept = branch.given_up()
            self._branches.remove(branch)
            await self._close_branches()
            guest.leave()
            kept.leave()
            await body.ask(b"adopt", {"pid": branch.body.pid})
            branch.body.release()
            guest.let_go()
            self._guest = Guest(body, branch.channel, kept.stdout, kept.stderr, greeted=True)
            self._guest.keeper = guest.keeper
            await self._about_to_run()
            self._numbered("")
            await self._done(self._guest, "adopted")
            await self._done(self._guest, "copy", cell=self._number)
            await self._went_well()

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._close_branches()
            await self._forget_undone()
        await super().close()
        if self._history is not None:
            history, self._history = self._history, None
            with anyio.CancelScope(shield=True):
                await history.close()

    async def _close_branches(self) -> None:
        while self._branches:
            await self._branches.pop().close()

    async def _branched(self, guest: Guest, state: int) -> Branch:
        body, limits = cast("Jailed", guest.body), self._limits
        ours, theirs = socket.socketpair()
        (out, out_in), (err, err_in) = os.pipe(), os.pipe()
        widen(out)
        try:
            with theirs:
                answer, fds = await body.ask(b"branch", {"cells": [state]}, theirs.fileno(), out_in, err_in)
        finally:
            os.close(out_in)
            os.close(err_in)
        if answer.get("cell") != state:
            ours.close()
            os.close(out)
            os.close(err)
            raise UndoRefused(
                f"the session cannot branch: {answer.get('error', 'no copy of its state is there')}"
            )
        outputs = Output("stdout", out, limits.output_bytes), Output("stderr", err, limits.output_bytes)
        branch_body = BranchBody(body, answer["pid"], fds[0])
        fresh = Guest(branch_body, ours, *outputs)
        try:
            await self._greeted(fresh)
        except BaseException:
            await fresh.ended("it was given up")
            raise
        return Branch(fresh, branch_body, ours, of=self, limits=limits)

    def _length_after(self, to: int | None) -> int:
        """How much of the path is left."""
        if to is None:
            if not self._path:
                raise UndoRefused("there is no cell to undo")
            return len(self._path) - 1
        if to != 0 and to not in self._path:
            known = ", ".join(map(str, (0, *self._path)))
            raise UndoRefused(f"there is no state after cell {to} to go back to; there are {known}")
        return self._path.index(to) + 1 if to else 0

    def _numbered(self, code: str) -> dict[str, int]:
        self._number += 1
        self._sources[self._number] = code
        self._path.append(self._number)
        return {"cell": self._number}

    async def _went_well(self) -> None:
        if self._history is not None:
            await self._history.after()

    async def _about_to_run(self) -> None:
        await self._forget_undone()
        if self._begin_history is not None:
            begin, self._begin_history = self._begin_history, None
            history = await begin()
            if isinstance(history, FileHistory):
                self._history = history
                lacks = uncovered(history.coverage)
            else:
                lacks = history
            if lacks:
                self._notices += (lacks,)
        if self._history is not None:
            await self._history.before(self._number + 1)

    async def _restore_files(self, path: list[int]) -> None:
        """As they were after these cells. Raises UndoRefused."""
        if self._history is None:
            return
        try:
            self._notices += tuple(await self._history.restore(path[-1] if path else 0))
        except SandboxError as error:
            raise UndoRefused(str(error)) from error

    async def _forget_undone(self) -> None:
        undone, self._undone = self._undone, []
        for one in undone:
            if one.parked is not None:
                one.parked.listen()
                await one.parked.ended("it was undone")
                if one.parked.keeper:
                    one.parked.keeper.close()

    async def _came_back(self, guest: Guest, death: Death, *, ran: bool) -> bool:
        if ran:
            self._path.pop()
            if self._history is not None:
                await self._history.after()
        try:
            self._guest = await self._woken(guest, self._path) if death.cells and self._path else None
            if self._guest is None:
                await self._begin_again(self._path)
        except (SandboxUnavailable, UndoRefused):
            self._path.clear()
        if death.cells and (self._guest is None or self._guest.body is not guest.body):
            guest.give_up_session()
        if self._guest is None:
            return False
        if ran:
            with suppress(UndoRefused):  # then they are as the code left them, and it is said
                await self._restore_files(self._path)
        return True

    async def _go(self, guest: Guest, path: list[int]) -> Guest | None:
        """Be in the state after these cells. What holds the state that was left, if it had to be begun again.

        Raises UndoRefused, and then nothing has changed.
        """
        guest.leave()
        try:
            copy = await self._woken(guest, path) if path else None
        except BaseException:
            guest.listen()
            raise
        if copy is not None:
            guest.hang_up_channel()
            self._guest = copy
            return None
        try:
            await self._begin_again(path)
        except BaseException:
            guest.listen()
            raise
        return guest

    async def _begin_again(self, path: list[int]) -> None:
        """From the start, if these cells can be run again. Raises UndoRefused, SandboxUnavailable."""
        fresh = await self._launcher.launch()
        try:
            if path:
                await self._replayed(fresh, path)
        except BaseException:
            await fresh.ended("it was given up")
            if fresh.keeper:
                fresh.keeper.close()
            raise
        self._guest = fresh
        self._keeper_left()  # the parked guest still has it, or its last one has closed it
        self._kept_by(fresh.keeper)

    async def _woken(self, guest: Guest, path: list[int]) -> Guest | None:
        """The copy of the state after these cells, in place of `guest`; None: no state since the start is kept.

        Raises UndoRefused, SandboxUnavailable.
        """
        body = cast("Jailed", guest.body)
        ours, theirs = socket.socketpair()
        with theirs:
            answer, _ = await body.ask(b"wake", {"cells": path}, theirs.fileno())
        woken = answer.get("cell")
        if woken not in path:
            ours.close()
            return None
        copy = Guest(body, ours, guest.stdout, guest.stderr)
        copy.keeper = guest.keeper
        try:
            await self._greeted(copy)
            if replayed := path[path.index(woken) + 1 :]:
                await self._replayed(copy, replayed)
            await body.ask(b"take", {})
            if threads := answer.get("threads"):
                self._notices += (THREADS.format(threads),)
        except BaseException:
            copy.leave()
            copy.hang_up_channel()
            raise
        return copy

    async def _greeted(self, copy: Guest) -> None:
        try:
            end = await asyncio.wait_for(copy.end(), WAKE_S)
        except TimeoutError as error:
            raise UndoRefused(f"the state did not come to life within {WAKE_S:g} s") from error
        if isinstance(end, Death):
            raise UndoRefused(f"the state did not come to life: {end.how}")

    async def _replayed(self, copy: Guest, cells: list[int]) -> None:
        """Cells of which no copy was left, because they can be run again."""
        body = json.dumps([[cell, self._sources[cell]] for cell in cells]).encode()
        if not await self._done(copy, "replay", body):
            raise UndoRefused(f"the state after cell {cells[-1]} is no longer kept")

    async def _done(self, guest: Guest, op: str, body: bytes = b"", **fields: int) -> bool:
        guest.post(op, body, ASK_STATUSES, REFUSAL_BYTES, fields)
        try:
            end = await asyncio.wait_for(guest.end(), WAKE_S)
        except TimeoutError:
            return False
        return not isinstance(end, Death) and end.status == "ok"
