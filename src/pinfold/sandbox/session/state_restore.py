"""Brings a guest into a state: by asking it, by running again what may be, from what was saved."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

from pinfold.sandbox.contract import Label, Resumed, UndoRefused
from pinfold.sandbox.guards.display_names import format_name
from pinfold.sandbox.session.cell_journal import COMMAND
from pinfold.sandbox.session.channel import INVENTORY_BYTES, REFUSAL_BYTES, ChannelBroken, Reply, inventory
from pinfold.sandbox.session.deaths import Death
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import JailedProcess
from pinfold.sandbox.session.saved_states import SavedStates, Unsaved
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


async def wake_snapshot(
    guest: Guest, saved: SavedStates, sources: Mapping[int, str], path: Sequence[int]
) -> tuple[Guest | None, tuple[str, ...]]:
    """The copy of the state after these cells, in place of `guest`, and what must be said of it.

    None if there is none that is whole: what can be saved of it, or of those before it, has been. Raises UndoRefused,
    SandboxUnavailable.
    """
    body = cast("JailedProcess", guest.body)
    kept = [cell for cell in path if cell in guest.copies]
    ours, theirs = socket.socketpair()
    asked = {"cells": kept, "known": sorted(sources)}
    with theirs:
        answer, _ = await body.ask(b"wake", {**asked, "whole": True}, theirs.fileno())
        if answer and not answer["woken"]:
            with suppress(Unsaved):
                await saved.save_all(body, kept, DEPTH_S)
                ours.close()
                return None, (SAVED_INSTEAD.format(answer["threads"]),)
            answer, _ = await body.ask(b"wake", {**asked, "whole": False}, theirs.fileno())
    cell = answer.get("cell")
    if cell not in kept:
        ours.close()
        return None, ()
    copy = Guest(body, ours, guest.stdout, guest.stderr)
    copy.keeper, copy.copies = guest.keeper, guest.copies
    copy.is_tried = True
    try:
        await wait_for_hello(copy)
        later = path[path.index(cell) + 1 :]
        is_there = not later or await replay_cells(copy, sources, later)
        if is_there:
            await body.ask(b"take", {})
    except BaseException:
        _give_up(copy)
        raise
    if not is_there:
        _give_up(copy)
        return None, ()
    copy.is_tried = False
    return copy, (THREADS.format(answer["threads"]),) if answer["threads"] else ()


def _give_up(copy: Guest) -> None:
    copy.leave()
    copy.hang_up_channel()


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
    said: list[str] = []
    lost = [f"{format_name(it.name)} ({format_name(it.reason)})" for it in back.labels if it.status == "lost"]
    if lost:
        said.append(f"Lost: {join_names(lost, NAMED)}.")
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
