"""The init's side of copies: which there are, how many, and who is ended when one of them is woken."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from contextlib import suppress

from .copies import FREED

MOST = 16
"""Copies of one session; of the older ones, those go first that are closest to another."""
RECENT = 6
"""Always kept, unless memory runs out."""
LINE_BYTES = 256
AGAIN_S = 0.0005
LEAVING_S = 1.0
ENDING_S = 2.0
"""For SIGKILL to have ended everything; a fork bomb may outrun us for a while."""


class Copy:
    def __init__(self, cell: int, pid: int, threads: int, waker: socket.socket) -> None:
        self.cell = cell
        self.pid = pid
        self.threads = threads
        """That ran when it was made, and do not run in it."""
        self.waker = waker


class Kept:
    """By the cell whose state they are; a state that is left twice is kept once."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        """Leads to the programs, whichever of them answers cells."""
        line.setblocking(False)
        self._copies: dict[int, Copy] = {}
        self._last = self._highest = 0
        """Number of a process: the one made last when we looked, and the highest there can be."""

    @property
    def pids(self) -> set[int]:
        return {copy.pid for copy in self._copies.values()}

    @property
    def cells(self) -> list[int]:
        return sorted(self._copies)

    def take_all(self) -> None:
        """The copies that have been left. What a program says here harms only itself: it is the one that is woken."""
        while True:
            try:
                message, fds, _, _ = socket.recv_fds(self.line, LINE_BYTES, 1)
            except OSError:
                return
            if not message:
                return
            self._take(message, fds)

    def await_copy(self, cell: int) -> None:
        """Of this state, which one that was woken leaves in its place: whoever asks next is to find it."""
        give_up_at = time.monotonic() + LEAVING_S
        while cell not in self._copies and (left := give_up_at - time.monotonic()) > 0:
            if select.select([self.line], [], [], left)[0]:
                self.take_all()

    def _take(self, message: bytes, fds: list[int]) -> None:
        try:
            told = json.loads(message)
            copy = Copy(
                int(told["cell"]), int(told["pid"]), int(told["threads"]), socket.socket(fileno=fds[0])
            )
        except (ValueError, KeyError, TypeError, IndexError):
            for fd in fds:
                os.close(fd)
            return
        self.drop([copy.cell])
        self._copies[copy.cell] = copy
        while len(self._copies) > MOST:
            self.drop([self._closest()])

    def last_of(self, cells: list[int]) -> Copy | None:
        """Of these states, the last that is kept."""
        return next((self._copies[cell] for cell in reversed(cells) if cell in self._copies), None)

    def woken(self, cells: list[int], fds: list[int], word: bytes = FREED) -> Copy | None:
        """The copy of the last of these states that is kept, given `fds`; None if none is."""
        for cell in reversed(cells):
            copy = self._copies.pop(cell, None)
            if copy is None:
                continue
            with copy.waker, suppress(OSError):  # or it is gone, and its end has not been heard of yet
                socket.send_fds(copy.waker, [word], fds)
                return copy
        return None

    def drop(self, cells: list[int]) -> None:
        """Without its waker a copy ends."""
        for cell in cells:
            copy = self._copies.pop(cell, None)
            if copy is not None:
                copy.waker.close()

    def drop_oldest(self) -> bool:
        """To make room; the newest stays. Whether there was one to drop."""
        if len(self._copies) < 2:
            return False
        self.drop([min(self._copies)])
        return True

    def lost(self, pid: int) -> bool:
        """This process has ended. Whether it was a copy."""
        cells = [copy.cell for copy in self._copies.values() if copy.pid == pid]
        self.drop(cells)
        return bool(cells)

    def end_all_but(self, spared: set[int]) -> None:
        """Every process here that is neither a copy nor one of these."""
        spared = spared | self.pids | {os.getpid()}
        give_up_at = time.monotonic() + ENDING_S
        while others := self._living() - spared:
            if time.monotonic() > give_up_at:
                os.kill(-1, signal.SIGKILL)
                os._exit(0)  # rather no session than one beside which something runs on
            for pid in others:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _reap_some(others)
            time.sleep(AGAIN_S)

    def _living(self) -> set[int]:
        """All of this process namespace. Asked one by one: in /proc a process can hide, from us as well."""
        with open("/proc/loadavg", encoding="ascii") as file:
            last = int(file.read().split()[-1])
        if last < self._last:
            with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
                self._highest = int(file.read())
        self._last, self._highest = last, max(last, self._highest)
        return {pid for pid in range(2, self._highest + 1) if _is_there(pid)}

    def _closest(self) -> int:
        cells = self.cells
        older = cells[:-RECENT]
        gaps = {cell: cells[at + 1] - (cells[at - 1] if at else 0) for at, cell in enumerate(older)}
        return min(gaps, key=gaps.__getitem__)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _reap_some(pids: set[int]) -> None:
    """Those of them that are ours to wait for."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
