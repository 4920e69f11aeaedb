"""Stops every process of a session at once, and lets them go on. For a session's init, which is none of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

STOP_S = 5.0
"""For all of them to stand still; a call into the kernel that writes much ends first."""
AGAIN_S = 0.001
STANDS = (b"T", b"t")
ENDED = (b"Z", b"X")


class Freezer:
    """`living` names every process of the session; `stop` sends SIGSTOP to all of them."""

    def __init__(self, living: Callable[[], set[int]], stop: Callable[[], None]) -> None:
        self._living = living
        self._stop = stop
        self._stood: set[int] = set()
        """Stood still before: they are left so."""

    def freeze(self) -> bool:
        """Whether none of them can run until `thaw`.

        Two looks that agree prove it: who stood at both and was not scheduled in between stood at the moment between
        them, when there was nobody else. One look would not do, for a process that is still running may wake one that
        was looked at already.
        """
        self._stood = {pid for pid in self._living() if _schedule_counts({pid}) is not None}
        give_up_at = time.monotonic() + STOP_S
        while time.monotonic() < give_up_at:
            self._stop()
            runs = _schedule_counts(self._living())
            if runs is not None and _schedule_counts(self._living()) == runs:
                return True
            time.sleep(AGAIN_S)
        self.thaw()
        return False

    def thaw(self) -> None:
        for pid in self._living() - self._stood:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)


def _schedule_counts(pids: set[int]) -> dict[str, list[bytes]] | None:
    """How often each thread has been scheduled so far; None if one of them does not stand still."""
    runs: dict[str, list[bytes]] = {}
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:  # it has ended
            continue
        for thread in threads:
            try:
                with open(f"/proc/{pid}/task/{thread}/status", "rb") as file:
                    lines = file.read().splitlines()
            except OSError:
                continue
            state = next(line.split()[1] for line in lines if line.startswith(b"State:"))
            if state in ENDED:
                continue
            if state not in STANDS:
                return None
            runs[thread] = [line for line in lines if b"_ctxt_switches:" in line]
    return runs
