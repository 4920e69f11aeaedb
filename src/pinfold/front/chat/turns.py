"""Runs a turn or the user's own cell in the session: starts it, waits for its end, interrupts it."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import TypeAlias

import anyio

from pinfold import events
from pinfold.app import Link, background
from pinfold.front.chat.input_queue import InputQueue

Target: TypeAlias = events.TurnId | events.ActionId
_STOP_S = 10.0
"""How long an interrupted turn may take to end before the chat leaves without it."""


class Turns:
    def __init__(self, input_queue: InputQueue, link: Link, current: events.TurnId | None) -> None:
        self._input_queue = input_queue
        self._link = link
        self._ends: dict[Target, anyio.Event] = {}
        self._stop_requested = asyncio.Event()
        self.current: Target | None = None
        self.was_cut_off = False
        """True if the last turn has no end and no process is running it."""
        self.has_any = current is not None
        """True if the session has had a turn or a cell, now or before."""
        input_queue.interrupted = self._stop_requested.set

    def take(self, event: events.Event) -> None:
        match event:
            case events.UserSpoke(turn=turn):
                self.has_any = True
                self.mark_busy(turn)
            case (
                events.TurnEnded(turn=turn)
                | events.TurnFailed(turn=turn)
                | events.TurnInterrupted(turn=turn)
                | events.ActionFinished(id=turn)
            ):
                self._mark_idle(turn)
                if turn in self._ends:
                    self._ends[turn].set()
            case _:
                pass

    async def run(self, turn: Target, command: events.Say | events.Continue | events.Execute) -> None:
        """Submit the command and wait until the turn ends or the user leaves."""
        ended = self._ends[turn] = anyio.Event()
        self.was_cut_off, self.has_any = False, True
        self.mark_busy(turn)
        with ExitStack() as if_it_fails:
            if_it_fails.callback(self._mark_idle, turn)
            await self._link.submit(command)
            if_it_fails.pop_all()
        async with background() as tasks:
            tasks.start_soon(self._end_on_leave, ended)
            await ended.wait()
        self._ends.pop(turn, None)

    async def stop(self) -> None:
        """Interrupt what still runs when the user leaves; its state is kept."""
        if self.current is None:
            return
        ended = self._ends[self.current] = anyio.Event()
        await self._link.submit(events.Interrupt(target=self.current))
        with anyio.move_on_after(_STOP_S):
            await ended.wait()

    async def forward_interrupts(self) -> None:
        """Submit the interrupts that key handlers request; they run outside any task, so they can only set an event."""
        while True:
            await self._stop_requested.wait()
            self._stop_requested.clear()
            if self.current is not None:
                await self._link.submit(events.Interrupt(target=self.current))

    def mark_busy(self, turn: Target) -> None:
        self.current = turn
        if self._input_queue.busy_since is None:
            self._input_queue.busy_since = time.monotonic()
        self._input_queue.changed()

    def _mark_idle(self, turn: Target) -> None:
        if self.current == turn:
            self.current = self._input_queue.busy_since = None
            self._input_queue.changed()

    async def _end_on_leave(self, ended: anyio.Event) -> None:
        await self._input_queue.left.wait()
        ended.set()
