"""Where the states of a session come from, and how a guest is brought into one.

`FrozenCopies`: the session's init keeps copies of the process, each holding the state after one cell. `SavedForks`: if
that is not possible, a fork of the guest sends its state to the host, which saves it. A new guest reaches a state by
loading a saved one and running again the cells that can be.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

import anyio

from pinfold.sandbox.contract import Label, Resumed, SandboxUnavailable, UndoRefused
from pinfold.sandbox.guards.named_files import format_name
from pinfold.sandbox.session.cell_calls import end_group
from pinfold.sandbox.session.channel import INVENTORY_BYTES, REFUSAL_BYTES, ChannelBroken, Reply, inventory
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Death, JailedProcess
from pinfold.sandbox.session.guest_slot import GuestSlot, Launcher
from pinfold.sandbox.session.saved_states import COMMAND, CellPath, SavedStates, Unsaved
from pinfold.text import join_names, join_numbers

THREADS = "Threads that ran in this state ({}) are gone: they do not survive going back, and code that waits for them will hang."
SAVED_INSTEAD = (
    "Threads ran in this state ({}), which do not survive going back: its variables were saved and made again."
)
DEPTH_S = 3.0
"""Time for saving states before the last one, so that undo can still return to them."""
WAKE_S = 5.0
"""Time for a guest to answer; a copy that waits for a thread it does not have never will."""
WAIT_S = 0.1
"""Time for a state that is still being saved; if that takes longer, the next state is not saved."""
NAMED = 8
"""Most variables named in one line."""


async def wait_for_hello(guest: Guest) -> None:
    """Wait for the hello of a new or woken guest. Raises UndoRefused."""
    try:
        end = await asyncio.wait_for(guest.end(), WAKE_S)
    except TimeoutError as error:
        raise UndoRefused(f"the saved process did not respond within {WAKE_S:g} s") from error
    if isinstance(end, Death):
        raise UndoRefused(f"the saved process did not respond: {end.how}")


async def run_operation(guest: Guest, op: str, body: bytes = b"", **fields: int) -> bool:
    end = await guest.ask(op, body, REFUSAL_BYTES, WAKE_S, **fields)
    return isinstance(end, Reply) and end.status == "ok"


async def replay_cells(guest: Guest, sources: Mapping[int, str], cells: Sequence[int]) -> bool:
    """Run again cells that left no copy because they can be run again. Returns True if all succeeded."""
    return await run_operation(guest, "replay", json.dumps([[cell, sources[cell]] for cell in cells]).encode())


async def restore_guest(guest: Guest, saved: SavedStates, sources: Mapping[int, str], path: Sequence[int]) -> Resumed:
    """Bring a new guest into the state after these cells, or as many of them as possible. Raises UndoRefused."""
    has = saved.cells
    base = next((length for length in range(len(path), 0, -1) if path[length - 1] in has), 0)
    labels: tuple[Label, ...] = ()
    if base:
        labels = await saved.restore(guest, path[base - 1], {cell: sources[cell] for cell in path[:base]})
    end = base
    while end < len(path) and await replay_cells(guest, sources, [path[end]]):
        end += 1
    labels += await _names_bound_by(guest, set(path[base:end]))
    missing = tuple(cell for cell in path[end:] if sources[cell] != COMMAND)
    return Resumed(cell=path[end - 1] if end else 0, missing=missing, labels=labels)


def describe_lost(back: Resumed) -> list[str]:
    """Return what was lost, one line each."""
    lost = [f"{format_name(it.name)} ({format_name(it.reason)})" for it in back.labels if it.status == "lost"]
    said = [f"Lost: {join_names(lost, NAMED)}."] if lost else []
    if back.missing:
        said.append(f"What {join_numbers('cell', back.missing)} did to variables is lost.")
    return said


async def _names_bound_by(guest: Guest, cells: set[int]) -> tuple[Label, ...]:
    """Return a label for each name that these cells have bound."""
    end = await guest.ask("variables", b"", INVENTORY_BYTES, WAKE_S) if cells else None
    if not isinstance(end, Reply):
        return ()
    try:
        found = [it.name for it in inventory(end.body) if it.cell in cells]
    except ChannelBroken as broken:
        raise UndoRefused(f"the guest broke its channel: {broken}") from broken
    return tuple(Label(name=name, status="replayed") for name in found)


class StateSource:
    """Where the states of a session come from."""

    parks = False
    """True if the guest that undo leaves is kept with its state, for redo."""

    def __init__(self, slot: GuestSlot, saved: SavedStates, cells: CellPath) -> None:
        self._slot = slot
        self._saved = saved
        self._cells = cells

    async def before_cell(self) -> None: ...

    async def before_undo(self, to: int | None) -> None: ...

    async def save(self, depth_s: float) -> None:
        """Save the state after the last finished cell, then earlier ones for up to `depth_s`."""
        raise NotImplementedError

    async def wake(self, guest: Guest, path: Sequence[int]) -> Guest | None:  # noqa: ARG002
        """Return a guest in the state after these cells, in place of `guest`. None if a new one must be started."""
        return None

    async def end_processes(self, guest: Guest, pids: list[int]) -> bool:
        """End the processes that these commands started. Returns True if all have ended."""
        raise NotImplementedError

    async def drop(self, guest: Guest) -> None:
        """Drop what is kept of states that undo and redo can no longer reach."""


class FrozenCopies(StateSource):
    """States are frozen copies of the process, woken when needed. Those of a durable session are saved meanwhile."""

    parks = True

    async def save(self, depth_s: float) -> None:
        """Save as above. Stops saving earlier states when a cell starts."""
        slot = self._slot
        try:
            if slot.runs:
                guest, path = slot.guest, self._cells.path[: None if slot.runs == "aside" else -1]
            else:
                async with slot.lock:
                    guest, path = slot.guest, self._cells.path[:]
                    if guest is not None and guest.death is None:
                        await run_operation(guest, "idle")
            if guest is not None and guest.death is None:
                kept = [cell for cell in path if cell in guest.copies]
                await self._saved.save_all(guest.body, kept, depth_s, lambda: not slot.lock.locked())
        except (Unsaved, SandboxUnavailable, OSError) as error:
            slot.notices += (f"{error}; after a restart they will be as they were saved last.",)

    async def wake(self, guest: Guest, path: Sequence[int]) -> Guest | None:
        """Wake the copy of the state after these cells, in place of `guest`. Raises UndoRefused, SandboxUnavailable.

        Returns None if there is no usable copy, or if threads ran in it and its state was saved instead.
        """
        body = cast("JailedProcess", guest.body)
        sources = self._cells.sources
        kept = [cell for cell in path if cell in guest.copies]
        ours, theirs = socket.socketpair()
        asked = {"cells": kept, "known": sorted(sources)}
        with theirs:
            answer, _ = await body.ask(b"wake", {**asked, "whole": True}, theirs.fileno())
            if answer and not answer["woken"]:
                with suppress(Unsaved):
                    await self._saved.save_all(body, kept, DEPTH_S)
                    ours.close()
                    self._slot.notices += (SAVED_INSTEAD.format(answer["threads"]),)
                    return None
                answer, _ = await body.ask(b"wake", {**asked, "whole": False}, theirs.fileno())
        cell = answer.get("cell")
        if cell not in kept:
            ours.close()
            return None
        copy = Guest(body, ours, guest.stdout, guest.stderr)
        copy.guard, copy.copies = guest.guard, guest.copies
        copy.is_tried = True
        try:
            await wait_for_hello(copy)
            later = path[path.index(cell) + 1 :]
            if not later or await replay_cells(copy, sources, later):
                await body.ask(b"take", {})
                copy.is_tried = False
        finally:
            if copy.is_tried:
                copy.leave()
                copy.channel.close()
        if copy.is_tried:
            return None
        if answer["threads"]:
            self._slot.notices += (THREADS.format(answer["threads"]),)
        return copy

    async def end_processes(self, guest: Guest, pids: list[int]) -> bool:
        """End the processes these commands started and all that started later. Returns True if all have ended."""
        answer, _ = await cast("JailedProcess", guest.body).ask(b"since", {"pid": min(pids)})
        return bool(answer.get("ended"))

    async def drop(self, guest: Guest) -> None:
        """Drop the copies of states that undo and redo can no longer reach."""
        with suppress(SandboxUnavailable):  # the next cell will report it
            await cast("JailedProcess", guest.body).ask(b"forget", {"known": sorted(self._cells.sources)})


class SavedForks(StateSource):
    """Forks of the guest save its states, one at a time, while cells go on. Only saved states can be restored."""

    def __init__(self, slot: GuestSlot, saved: SavedStates, cells: CellPath) -> None:
        super().__init__(slot, saved, cells)
        self._receiving: asyncio.Task[None] | None = None
        self._has_gap = False
        """True if a state was not saved, so that running cells again cannot produce the states after it."""

    async def before_cell(self) -> None:
        """Start saving the present state, unless its cell can be run again or another state is still being saved."""
        guest, cells = self._slot.guest, self._cells
        # Commands since the last cell have not changed the variables.
        cell = next((cell for cell in reversed(cells.path) if not cells.are_commands([cell])), None)
        if guest is None or guest.death is not None or cell is None or cell in self._saved.cells:
            return
        if self._receiving is not None:
            await asyncio.wait((self._receiving,), timeout=WAIT_S)
            if not self._receiving.done():
                self._has_gap = True
                return
        told = await self._saved.fork_saver(guest, anyway=self._has_gap)
        if told is not None:
            self._has_gap = False
            self._receiving = asyncio.get_running_loop().create_task(self._receive(cell, told))

    async def _receive(self, cell: int, told: socket.socket) -> None:
        try:
            await self._saved.take(cell, told)
        except Unsaved as error:
            self._slot.notices += (f"{error}; it cannot be gone back to.",)

    async def before_undo(self, to: int | None) -> None:
        path = self._cells.path
        at = path.index(to) + 1 if to in path else len(path) - 1 if to is None else 0
        if not self._cells.are_commands(path[at:]):
            await self.save(0)  # otherwise redo could not return to the present state

    async def save(self, depth_s: float) -> None:  # noqa: ARG002 - states before it are saved or gone
        if not self._slot.runs:
            async with self._slot.lock:
                await self.before_cell()
        if self._receiving is not None:
            with anyio.CancelScope(shield=True):
                await self._receiving

    async def end_processes(self, guest: Guest, pids: list[int]) -> bool:
        """End processes that are still in the process groups of these commands. Returns True if the guest lives."""
        return all([await end_group(guest, pid) for pid in pids])


class PreparedGuests:
    """Launches guests and prepares each for saving before any user code runs in it."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.sweep = launcher.sweep
        self.release = launcher.release

    async def launch(self) -> Guest:
        guest = await self._launcher.launch()
        await run_operation(guest, "prepare")
        return guest
