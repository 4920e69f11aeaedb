"""Saves a session's variables while it runs, and restores them in a new guest. Connects the store with the guests."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import cast

import anyio
import anyio.to_thread

from pinfold.events import Json, decode_json
from pinfold.sandbox.contract import Label, UndoRefused
from pinfold.sandbox.kernel.folders import TemporaryFolder
from pinfold.sandbox.session.channel import INVENTORY_BYTES, REFUSAL_BYTES
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Death, GuestProcess, JailedProcess
from pinfold.sandbox.session.state_store import Stalled, Store, Unsaved

COMMAND = "pass  # a program was run beside the cells"
"""The source recorded for a command. Running it again does nothing, because a command does not change variables."""


@dataclass(slots=True)
class CellPath:
    number: int = 0
    """The number of the last cell."""
    path: list[int] = field(default_factory=list[int])
    """The cells whose effects are present, in order."""
    undone: list[list[int]] = field(default_factory=list[list[int]])
    """The cells that each undo took back and redo can restore; the last undo comes last."""
    sources: dict[int, str] = field(default_factory=dict[int, str])
    """The source of each cell, to run it again; empty if its variables are lost."""
    cut: int | None = None
    """The cell that was running when the process ended."""

    def are_commands(self, cells: Sequence[int]) -> bool:
        """Return True if all of these are commands, so that the variables are the same before and after them."""
        return all(self.sources.get(cell) == COMMAND for cell in cells)


class CellJournal:
    """Logs what happens to the cells, so that another process can resume. Without a file it does nothing."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._fd = -1

    def load(self) -> CellPath:
        """Read the journal, and open it for appending."""
        way = CellPath()
        if self._file is None:
            return way
        lines = self._file.read_bytes().splitlines(keepends=True) if self._file.exists() else []
        for line in lines:
            try:
                _apply_line(way, json.loads(line))
            except (ValueError, TypeError, KeyError, IndexError):  # cut off or damaged; other lines are still of use
                continue
        # Lines may be missing: a cell without source counts as lost, and no number may be given twice.
        cells = [*way.path, *(cell for cells in way.undone for cell in cells)]
        way.sources = dict.fromkeys(cells, "") | way.sources
        way.number = max([way.number, *cells])
        self._fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if lines and not lines[-1].endswith(b"\n"):
            os.write(self._fd, b"\n")
        return way

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def write(self, *line: object) -> None:
        if self._fd < 0:
            return
        try:
            told = json.dumps(line).encode() + b"\n"
            is_whole = os.write(self._fd, told) == len(told)
        except OSError:
            is_whole = False
        if not is_whole:
            # The disk is full. A journal with a gap would be wrong, so remove it.
            self.close()
            if self._file is not None:
                self._file.unlink(missing_ok=True)


def _apply_line(way: CellPath, line: list[Json]) -> None:
    match line[0]:
        case "runs":
            _, number, code = line
            way.number = way.cut = int(number)
            way.sources[way.number] = str(code)
            way.path.append(way.number)
            way.undone.clear()
        case "ended":
            way.cut = None
        case "at":
            _, path, undone = line
            way.path, way.undone = [*map(int, path)], [[*map(int, cells)] for cells in undone]
            way.cut = None
        case "lost":
            way.sources.update((int(number), "") for number in line[1])
        case _:
            raise ValueError(f"{line} is nothing that happens")


TRIES = 4
"""Attempts to save a state; each leaves out one more variable, whose own code did not end."""
RESTORE_S = 300.0
HUNG = "saving it does not end"


class SavedStates:
    """The saved states of one session: kept in `folder`, or without one only while the session lives."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._scratch: TemporaryFolder | None = None
        self._store: Store | None = None
        self._hung: dict[str, str] = {}
        self._saving = asyncio.Lock()
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.trail = CellJournal(folder / "trail" if folder else None)

    @property
    def is_durable(self) -> bool:
        return self._folder is not None

    @property
    def cells(self) -> set[int]:
        """The cells whose states are saved."""
        return self.store.cells if self._folder or self._store else set()

    @property
    def store(self) -> Store:
        if self._store is None:
            if self._folder is not None:
                self._store = Store(self._folder / "variables")
            else:
                self._scratch = TemporaryFolder("variables")
                self._store = Store(self._scratch.path)
        return self._store

    async def save_all(
        self, body: GuestProcess, path: Sequence[int], depth_s: float, go_on: Callable[[], bool] = lambda: True
    ) -> None:
        """Save the last of these states, then earlier ones for up to `depth_s`. Raises Unsaved, SandboxUnavailable."""
        until = perf_counter() + depth_s
        while path:
            cell = await self._save(cast("JailedProcess", body), path)
            if cell is None or perf_counter() > until or not go_on():
                return
            path = path[: path.index(cell)]

    async def _save(self, body: JailedProcess, path: Sequence[int]) -> int | None:
        """Save the last of these states of which a copy is left. Returns its cell, or None if there is no copy."""
        async with self._saving:
            for _ in range(TRIES):
                ours, theirs = socket.socketpair()
                with ours:
                    with theirs:
                        answer, _fds = await body.ask(
                            b"save", {"cells": list(path), "known": sorted(self.store.cells)}, theirs.fileno()
                        )
                    cell: int | None = answer.get("cell")
                    if cell is None or cell not in path:
                        return None
                    if cell in self.store.cells:
                        return cell
                    try:
                        await self._receive(cell, ours)
                    except Stalled as stalled:
                        await body.ask(b"unsave", {})
                        self._hung[stalled.name] = HUNG
                    else:
                        return cell
        raise Unsaved("the variables could not be saved: too many of them hang while they are saved")

    @asynccontextmanager
    async def idle(self) -> AsyncGenerator[None]:
        """Suspend saving inside the `with` block, because saving wakes a process."""
        async with self._saving:
            yield

    async def fork_saver(self, guest: Guest, *, anyway: bool) -> socket.socket | None:
        """Fork the guest, and return the socket on which the fork sends its state.

        Returns None if the last cell can be run again instead, unless `anyway`.
        """
        try:
            ours = await _hand_socket(guest)
        except UndoRefused:
            return None
        try:
            await _ask_guest(guest, "save", b"", REFUSAL_BYTES, anyway=int(anyway))
        except UndoRefused:
            ours.close()
            return None
        return ours

    async def take(self, cell: int, told: socket.socket) -> None:
        """Receive and save the state after `cell` from a fork. Raises Unsaved."""
        async with self._saving:
            with told:
                try:
                    await self._receive(cell, told)
                except Stalled as stalled:
                    self._hung[stalled.name] = HUNG
                    raise

    async def _receive(self, cell: int, saver: socket.socket) -> None:
        """Receive a state in a thread. A thread cannot be cancelled, so cancellation shuts down its socket."""
        receiving = asyncio.ensure_future(asyncio.to_thread(self.store.receive, cell, saver, self._hung))
        try:
            await asyncio.shield(receiving)
        except asyncio.CancelledError:
            with suppress(OSError):
                saver.shutdown(socket.SHUT_RDWR)
            with anyio.CancelScope(shield=True), suppress(Unsaved):
                await receiving
            raise

    def forget_all(self) -> None:
        """Forget all states, because the cells that led to them are not known."""
        for cell in self.cells:
            self.store.forget(cell)

    async def restore(self, guest: Guest, cell: int, sources: Mapping[int, str]) -> tuple[Label, ...]:
        """Restore the state after `cell` in a new guest. Raises UndoRefused."""
        try:
            told = await anyio.to_thread.run_sync(self.store.load_state, cell)
        except Unsaved as error:
            raise UndoRefused(str(error)) from error
        told["sources"] = {str(number): code for number, code in sources.items()}
        ours = await _hand_socket(guest)
        Thread(target=self.store.serve, args=(ours,), daemon=True, name="pinfold-restoring").start()
        try:
            answer = await _ask_guest(guest, "restore", json.dumps(told).encode(), INVENTORY_BYTES)
            return decode_json(answer, tuple[Label, ...])
        except (ValueError, RecursionError) as error:
            raise UndoRefused(f"the guest broke its channel: {error}") from error
        finally:
            with suppress(OSError):  # fails if the guest has hung up; without it, user code could block the thread
                ours.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        async with self._saving:
            self.trail.close()
            if self._scratch is not None:
                await anyio.to_thread.run_sync(self._scratch.remove)


async def _hand_socket(guest: Guest) -> socket.socket:
    """Give the guest one end of a new socket, and return the other. Raises UndoRefused."""
    await _ask_guest(guest, "receive", b"", REFUSAL_BYTES)
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            guest.give(theirs.fileno())
        except OSError as error:
            ours.close()
            raise UndoRefused(f"the guest is gone: {error}") from error
    return ours


async def _ask_guest(guest: Guest, op: str, body: bytes, reply_bytes: int, **fields: int) -> bytes:
    end = await guest.ask(op, body, reply_bytes, RESTORE_S, **fields)
    if end is None:
        raise UndoRefused(f"the state was not restored within {RESTORE_S:g} s")
    if isinstance(end, Death):
        raise UndoRefused(f"the state could not be restored: {end.how}")
    if end.status != "ok":
        raise UndoRefused(f"the state could not be restored: {end.body.decode('utf-8', 'replace')}")
    return end.body
