"""How a cell ends: in time or not, and what it is called then."""

from __future__ import annotations

import asyncio

from pinfold.sandbox._deaths import Death, End
from pinfold.sandbox._guest import Guest
from pinfold.sandbox.contract import Status

OVERDUE = "it could not be interrupted and its process was killed"


class Deadline:
    """Interrupts the guest when the limit has passed, kills it when the grace has too."""

    def __init__(self, guest: Guest, limit_s: float, grace_s: float) -> None:
        self.passed = False
        self._guest = guest
        self._grace_s = grace_s
        self._left_s: float | None = None
        """While it is paused."""
        self._pauses = 0
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(limit_s, self.now, grace_s)

    def pause(self) -> None:
        """The cell waits for us, which is not its own time; perhaps for several answers at once."""
        self._pauses += 1
        if self._pauses == 1 and not (self.passed or self._is_over):
            self._left_s = max(0.0, self._timer.when() - self._loop.time())
            self._timer.cancel()

    def go_on(self) -> None:
        """One of the waits is over."""
        self._pauses = max(0, self._pauses - 1)
        if not self._pauses:
            self.wake()

    def wake(self) -> None:
        """Whatever it waits for."""
        self._pauses = 0
        if self._left_s is not None:
            self._timer = self._loop.call_later(self._left_s, self.now, self._grace_s)
            self._left_s = None

    def now(self, grace_s: float) -> None:
        self.passed = True
        self._left_s = None
        self._timer.cancel()
        self._guest.interrupt()
        self._timer = self._loop.call_later(grace_s, self._overdue)

    def _overdue(self) -> None:
        if self._guest.is_busy:  # it may have ended in this very turn of the loop
            self._guest.kill(OVERDUE)

    def cancel(self) -> None:
        self._is_over = True
        self._left_s = None
        self._timer.cancel()


def verdict(end: End, limit_s: float | None, state: str, *, rolled_back: bool) -> tuple[Status, str | None]:
    """What a cell's end is called; `limit_s` when it had passed. `state`: of the variables, should they not be as it left them."""
    if isinstance(end, Death):
        if limit_s is not None and end.how == OVERDUE:
            return "timeout", f"The cell ran for more than {limit_s:g} s; {OVERDUE}; {state}.\n"
        return "killed", f"The interpreter is gone: {end.how}; {state}.\n"
    if rolled_back:
        return "killed", f"{end.error or ''}The cell ran out of memory; {state}.\n"
    if limit_s is not None and end.interrupted:
        said = (
            f"The cell ran for more than {limit_s:g} s and was interrupted; variables are as it left them.\n"
        )
        return "timeout", said + (end.error or "")
    match end.status:
        case "ok" | "error" | "interrupted":
            return end.status, end.error
        case "hello" | "refused" | "call" | "drop" | "ran" | "output":
            raise AssertionError(f"the reader let {end.status!r} through as the end of a cell")
