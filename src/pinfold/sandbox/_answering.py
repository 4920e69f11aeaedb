"""A call of a cell while the host works on it: what runs in the cell's slot meanwhile, and the answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import perf_counter

import anyio

from pinfold.sandbox._commands import Command, not_run
from pinfold.sandbox._endings import Deadline, encoded
from pinfold.sandbox._guest import Guest
from pinfold.sandbox.channel import GuestCall
from pinfold.sandbox.contract import Answer, CommandOutcome, OnCall

GONE = "the cell that made the call has ended, or does not wait for it any more"


class Answering:
    def __init__(self, guest: Guest, call: GuestCall, deadline: Deadline) -> None:
        self._guest = guest
        self._call = call
        self._deadline = deadline
        self._turn = asyncio.Lock()

    async def answer(self, on_call: OnCall) -> None:
        """Unless the cell ends first: then nobody waits for the answer, and the tool is given up."""
        answer: Answer | None = None
        failure: Exception | None = None

        async def give_up() -> None:
            await self._guest.end()
            tasks.cancel_scope.cancel()

        self._deadline.pause()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(give_up)
            try:
                answer = await on_call(self._call.tool, self._call.args)
            except Exception as error:  # noqa: BLE001 - the caller's: `run` raises it again, as it is
                failure = error
            tasks.cancel_scope.cancel()
        self._deadline.go_on()
        if failure is not None:
            raise failure
        if answer is not None:
            body, ok = encoded(answer)
            self._guest.answer(self._call, body, ok=ok)

    async def run(self, command: Command, reply_s: float) -> CommandOutcome:
        """In the cell's slot, by the thread of it that waits. Never raises for what the cell does: it has its own end."""
        async with self._turn:
            started = perf_counter()
            await self._guest.calm()
            ran = await self._guest.nested(
                self._call, command.body, len(command.head), command.timeout_s + reply_s, command.on_piece
            )
        outcome = not_run(f"{command.name}: {GONE}") if ran is None else ran.outcome
        return replace(outcome, duration_s=perf_counter() - started)
