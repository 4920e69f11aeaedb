"""How a cell ends: in time or not, and what it is called then."""

from __future__ import annotations

import asyncio

from pinfold.sandbox.contract import Status
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Death, End

COUNTED_S = 0.001
"""Of each wait, that is the cell's own time: or one that makes call after call would never be overdue."""
OVERDUE = "it could not be interrupted and its process was killed"


class Deadline:
    """Interrupts the guest when the limit has passed, kills it when the grace has too."""

    def __init__(self, guest: Guest, limit_s: float, grace_s: float) -> None:
        self.passed = False
        self.why: str | None = None
        """It was stopped before its time."""
        self._guest = guest
        self.grace_s = grace_s
        self._pauses = 0
        self._paused_at: float | None = None
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + limit_s
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(self._due, self._look)

    def pause(self) -> None:
        """The cell waits for us, which is not its own time; perhaps for several answers at once."""
        self._pauses += 1
        if self._pauses == 1 and not (self.passed or self._is_over):
            # The timer goes on: a pause is short as a rule, and there may be thousands a second.
            self._paused_at = self._loop.time()

    def go_on(self) -> None:
        """One of the waits is over."""
        self._pauses = max(0, self._pauses - 1)
        if not self._pauses:
            self.wake()

    def wake(self) -> None:
        """Whatever it waits for."""
        self._pauses = 0
        if self._paused_at is not None:
            self._due += max(0.0, self._loop.time() - self._paused_at - COUNTED_S)
            self._paused_at = None
            if self._timer is None:
                self._timer = self._loop.call_at(self._due, self._look)

    def stop(self, why: str, grace_s: float) -> None:
        """Whatever time is left. Once; the grace is not begun anew."""
        if self.why is None and not (self.passed or self._is_over):
            self.why = why
            self.now(grace_s)

    def now(self, grace_s: float) -> None:
        self.passed = True
        self._paused_at = None
        self._stop()
        self._guest.interrupt()
        self._timer = self._loop.call_later(grace_s, self._guest.kill_busy, OVERDUE)

    def _look(self) -> None:
        self._timer = None
        if self._paused_at is not None:
            return  # `wake` sets it again
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
        else:
            self.now(self.grace_s)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self) -> None:
        self._is_over = True
        self._paused_at = None
        self._stop()


def verdict(
    end: End, limit_s: float | None, state: str, *, rolled_back: bool, why: str | None = None
) -> tuple[Status, str | None]:
    """What a cell's end is called; `limit_s` when it had passed, `why` if it was stopped before.

    `state`: of the variables, should they not be as it left them.
    """
    if why is not None:
        if isinstance(end, Death):
            return "killed", f"{why}; {end.how}; {state}.\n"
        return "error", f"{why}; undo takes it back.\n{end.error or ''}"
    if isinstance(end, Death):
        if limit_s is not None and end.how == OVERDUE:
            return "timeout", f"The cell ran for more than {limit_s:g} s; {OVERDUE}; {state}.\n"
        return "killed", f"The interpreter is gone: {end.how}; {state}.\n"
    if rolled_back:
        return "killed", f"{end.error or ''}The cell ran out of memory; {state}.\n"
    if limit_s is not None and end.interrupted:
        said = f"The cell ran for more than {limit_s:g} s and was interrupted; variables are as it left them.\n"
        return "timeout", said + (end.error or "")
    if end.status in ("ok", "error", "interrupted"):
        return end.status, end.error
    raise AssertionError(f"the reader let {end.status!r} through as the end of a cell")
