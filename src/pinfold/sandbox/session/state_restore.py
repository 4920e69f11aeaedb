"""Where the states of a session come from, and how a guest is brought into one.

`FrozenCopies`: the session's init keeps copies of the process, each the state after one cell. `SavedForks`: where a guest
cannot be copied so, a fork of it tells its state, which is saved. A new guest is brought into a state from what was saved
and by running again the cells that can be.
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

THREADS = (
    "Threads that ran in this state ({}) are gone: they do not survive going back, and what waits for them will wait."
)
SAVED_INSTEAD = (
    "Threads ran in this state ({}), which do not survive going back: its variables were saved and made again."
)
DEPTH_S = 3.0
"""For saving states before the last one, so that they can still be gone back to."""
WAKE_S = 5.0
"""For a guest to answer; a copy that waits for a thread it does not have never will."""
WAIT_S = 0.1
"""For a state that is still being saved; if it takes longer, the next one is not saved."""
NAMED = 8
"""Variables that are named in one line."""


async def wait_for_hello(guest: Guest) -> None:
    """It has said hello. Raises UndoRefused."""
    try:
        end = await asyncio.wait_for(guest.end(), WAKE_S)
    except TimeoutError as error:
        raise UndoRefused(f"the state did not come to life within {WAKE_S:g} s") from error
    if isinstance(end, Death):
        raise UndoRefused(f"the state did not come to life: {end.how}")


async def run_operation(guest: Guest, op: str, body: bytes = b"", **fields: int) -> bool:
    end = await guest.ask(op, body, REFUSAL_BYTES, WAKE_S, **fields)
    return isinstance(end, Reply) and end.status == "ok"


async def replay_cells(guest: Guest, sources: Mapping[int, str], cells: Sequence[int]) -> bool:
    """Cells of which no copy was left, because they can be run again. Whether they can."""
    return await run_operation(guest, "replay", json.dumps([[cell, sources[cell]] for cell in cells]).encode())


async def restore_guest(guest: Guest, saved: SavedStates, sources: Mapping[int, str], path: Sequence[int]) -> Resumed:
    """Have a new guest be as after these cells, or as many of them as can be. Raises UndoRefused."""
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
    """A line each."""
    lost = [f"{format_name(it.name)} ({format_name(it.reason)})" for it in back.labels if it.status == "lost"]
    said = [f"Lost: {join_names(lost, NAMED)}."] if lost else []
    if back.missing:
        said.append(f"What {join_numbers('cell', back.missing)} did to variables is lost.")
    return said


async def _names_bound_by(guest: Guest, cells: set[int]) -> tuple[Label, ...]:
    """The names these cells have bound."""
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
    """A guest that was left keeps its state, for redo."""

    def __init__(self, slot: GuestSlot, saved: SavedStates, cells: CellPath) -> None:
        self._slot = slot
        self._saved = saved
        self._cells = cells

    async def before_cell(self) -> None: ...

    async def before_undo(self, to: int | None) -> None: ...

    async def save(self, depth_s: float) -> None:
        """The state after the last cell that has ended; then those before it, as long as there is time."""
        raise NotImplementedError

    async def wake(self, guest: Guest, path: Sequence[int]) -> Guest | None:  # noqa: ARG002
        """A guest in the state after these cells, in place of `guest`. None if a new one must be started."""
        return None

    async def end_processes(self, guest: Guest, pids: list[int]) -> bool:
        """What these commands started. Whether all of that has ended."""
        raise NotImplementedError

    async def drop(self, guest: Guest) -> None:
        """Drop what is kept of states that can no longer be gone to."""


class FrozenCopies(StateSource):
    """States are frozen copies of the process, which are woken; they are saved beside the cells if the session lasts."""

    parks = True

    async def save(self, depth_s: float) -> None:
        """Also until a cell runs."""
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
        """The copy of the state after these cells, in place of `guest`.

        None if there is none that is whole: what can be saved of it, or of those before it, has been. Raises UndoRefused,
        SandboxUnavailable.
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
        """What these commands started; with it goes whatever else began later. Whether all of that has ended."""
        answer, _ = await cast("JailedProcess", guest.body).ask(b"since", {"pid": min(pids)})
        return bool(answer.get("ended"))

    async def drop(self, guest: Guest) -> None:
        """Drop the copies of states that can no longer be gone to."""
        with suppress(SandboxUnavailable):  # the cell to come will say so
            await cast("JailedProcess", guest.body).ask(b"forget", {"known": sorted(self._cells.sources)})


class SavedForks(StateSource):
    """States are saved by forks of the guest, one at a time, beside the cells. Only what is saved comes back."""

    def __init__(self, slot: GuestSlot, saved: SavedStates, cells: CellPath) -> None:
        super().__init__(slot, saved, cells)
        self._receiving: asyncio.Task[None] | None = None
        self._has_gap = False
        """A state was not saved, so that those after it cannot be had by running cells again."""

    async def before_cell(self) -> None:
        """Begin to save the state as it is now, unless it can be run again or another is still being saved."""
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
            await self.save(0)  # or there would be nothing to come back to

    async def save(self, depth_s: float) -> None:  # noqa: ARG002 - states before it are saved or gone
        if not self._slot.runs:
            async with self._slot.lock:
                await self.before_cell()
        if self._receiving is not None:
            with anyio.CancelScope(shield=True):
                await self._receiving

    async def end_processes(self, guest: Guest, pids: list[int]) -> bool:
        """As far as they are still in the process groups of the commands."""
        return all([await end_group(guest, pid) for pid in pids])


class PreparedGuests:
    """Guests of a launcher, each ready to be saved before any code of the program's runs in it."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.sweep = launcher.sweep
        self.release = launcher.release

    async def launch(self) -> Guest:
        guest = await self._launcher.launch()
        await run_operation(guest, "prepare")
        return guest
