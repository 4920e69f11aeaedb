"""The init's side of copies: which there are, how many, and who is ended when one of them is woken.

The program can say on the line whatever it likes, so that what counts is only what the kernel says of it too: who
speaks, and whether the process it names is a child of ours. A state that was kept once is not given another copy,
but by the one that was woken from it, or where the host asked for one: else a cell could have itself woken in
place of the state before it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from ..kernel.groups import descendants
from ..kernel.processes import send_signal
from .copies import BRANCH, FREED

MOST = 16
"""Copies of one session; of the older ones, those go first that are closest to another."""
RECENT = 6
"""Always kept, unless memory runs out."""
LINE_BYTES = 256
LINES = 512
"""Heard at once, which is more than the line holds: a program that never stops talking must not keep us from the host."""
HIGHEST = 1 << 31
"""Number of a cell, and of a process."""
_SENDER = struct.Struct("3i")
_ROOM = socket.CMSG_SPACE(_SENDER.size) + socket.CMSG_SPACE(4)
AGAIN_S = 0.0005
LEAVING_S = 1.0
ENDING_S = 2.0
"""For SIGKILL to have ended everything; a fork bomb may outrun us for a while."""


class Snapshot:
    def __init__(self, cell: int, pid: int, threads: int, waker: socket.socket) -> None:
        self.cell = cell
        self.pid = pid
        self.threads = threads
        """That ran when it was made, and do not run in it."""
        self.waker = waker


class SnapshotRegistry:
    """By the cell whose state they are; a state that is left twice is kept once."""

    def __init__(self, line: socket.socket, runner: int) -> None:
        self.line = line
        """Leads to the programs, whichever of them answers cells."""
        self.runner = runner
        """Who may leave copies of new states."""
        self.reserved: set[int] = set()
        """Children of ours that are no program's."""
        line.setblocking(False)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._copies: dict[int, Snapshot] = {}
        self._seen: set[int] = set()
        """States that have been kept."""
        self._awaited: dict[int, int] = {}
        """Of which state which process, woken from it, is to leave another copy."""
        self._last = self._highest = 0
        """Number of a process: the one made last when we looked, and the highest there can be."""

    @property
    def pids(self) -> set[int]:
        return {copy.pid for copy in self._copies.values()}

    @property
    def cells(self) -> list[int]:
        return sorted(self._copies)

    def accept_all(self) -> bool:
        """The copies that have been left. Whether there can be more."""
        for _ in range(LINES):
            try:
                message, with_it, _, _ = self.line.recvmsg(LINE_BYTES, _ROOM)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not message:
                return False
            sender, fds = _parse_ancillary(with_it)
            taken = self._parse_snapshot(message, sender, fds)
            if taken is None:
                for fd in fds:
                    os.close(fd)
            else:
                self._keep(taken)
        return True

    def expect(self, cell: int) -> None:
        """The host has the runner leave another copy of its state."""
        self._awaited[cell] = self.runner

    def await_snapshot(self, cell: int, limit_s: float = LEAVING_S) -> None:
        """Of this state, which one that was woken leaves in its place: the next request is to find it."""
        give_up_at = time.monotonic() + limit_s
        while cell not in self._copies and (left := give_up_at - time.monotonic()) > 0:
            if select.select([self.line], [], [], left)[0] and not self.accept_all():
                return

    def _parse_snapshot(self, message: bytes, sender: int, fds: list[int]) -> Snapshot | None:
        """None if it is not what it says."""
        try:
            told = json.loads(message)
            cell, pid, threads = (told[name] for name in ("cell", "pid", "threads"))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not all(type(it) is int and 0 <= it < HIGHEST for it in (cell, pid, threads)) or len(fds) != 1:
            return None
        is_new = sender == self.runner and cell not in self._seen
        if not (is_new or self._awaited.get(cell) == sender) or not self._is_free(pid):
            return None
        try:
            waker = socket.socket(fileno=os.dup(fds[0]))
        except OSError:
            return None
        if (waker.family, waker.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
            waker.close()
            return None
        os.close(fds[0])
        waker.setblocking(False)
        return Snapshot(cell, pid, threads, waker)

    def _is_free(self, pid: int) -> bool:
        """A living child of ours that is nothing else yet: only then do we know who is meant, until we wait for it."""
        if pid < 2 or pid in {self.runner, *self.reserved, *self.pids, *self._awaited.values()}:
            return False
        try:
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def _keep(self, copy: Snapshot) -> None:
        self._awaited.pop(copy.cell, None)
        self._seen.add(copy.cell)
        self.drop([copy.cell])
        self._copies[copy.cell] = copy
        while len(self._copies) > MOST:
            self.drop([self._most_redundant()])

    def last_of(self, cells: list[int]) -> Snapshot | None:
        """Of these states, the last that is kept."""
        return next((self._copies[cell] for cell in reversed(cells) if cell in self._copies), None)

    def wake(self, cells: list[int], fds: list[int], word: bytes = FREED) -> Snapshot | None:
        """The copy of the last of these states that is kept, given `fds`; None if none is."""
        for cell in reversed(cells):
            copy = self._copies.pop(cell, None)
            if copy is None:
                continue
            with copy.waker, suppress(OSError):  # or it is gone, and its end has not been heard of yet
                socket.send_fds(copy.waker, [word], fds)
                os.kill(copy.pid, signal.SIGCONT)
                if word != BRANCH:
                    self._awaited[cell] = copy.pid
                return copy
            os.kill(copy.pid, signal.SIGKILL)
        return None

    def drop(self, cells: list[int]) -> None:
        for cell in cells:
            copy = self._copies.pop(cell, None)
            if copy is not None:
                copy.waker.close()
                send_signal(copy.pid, signal.SIGKILL)

    def keep_only(self, cells: set[int]) -> None:
        """Drop all others: they cannot be gone back to, or are of cells that never ran."""
        self.drop([cell for cell in self._copies if cell not in cells])
        self._seen &= cells

    def hold_after(self, cell: int) -> None:
        """States after this one were left; what is kept of them may not run on, whatever it is."""
        for copy in self._copies.values():
            if copy.cell > cell:
                os.kill(copy.pid, signal.SIGSTOP)

    def drop_oldest(self) -> bool:
        """To make room; the newest stays. Whether there was one to drop."""
        if len(self._copies) < 2:
            return False
        self.drop([min(self._copies)])
        return True

    def forget_process(self, pid: int) -> bool:
        """This process has ended, and its number may soon be another's. Whether it was a copy."""
        self._awaited = {cell: by for cell, by in self._awaited.items() if by != pid}
        cells = [copy.cell for copy in self._copies.values() if copy.pid == pid]
        self.drop(cells)
        return bool(cells)

    def end_all_but(self, spared: set[int]) -> None:
        """Every process here that is neither a copy nor one of these."""
        spared = spared | self.pids | {os.getpid()}
        if not _end_all(lambda: self.list_processes() - spared):
            os.kill(-1, signal.SIGKILL)
            os._exit(0)  # rather no session than one beside which something runs on
        self.accept_all()
        self._awaited = {cell: by for cell, by in self._awaited.items() if by in spared}

    def end_from(self, first: int, spared: set[int]) -> bool:
        """Every process from this number on that is neither a copy nor one of these. Whether none is left."""
        spared = spared | self.pids | {os.getpid()}

        def find() -> set[int]:
            others = {pid for pid in self.list_processes() - spared if pid >= first}
            # When the numbers have begun again, which came later cannot be told.
            return others if self._last >= first else set()

        return _end_all(find) and self._last >= first

    def end_orphans(self, spared: set[int]) -> None:
        """Processes whose parents have ended, with all that they started; neither copies nor these."""
        self.accept_all()
        spared = spared | self.pids | {os.getpid()}

        def find() -> set[int]:
            orphans = _list_children() - spared
            return orphans | {one for pid in orphans for one in descendants(pid)}

        _end_all(find)

    def list_processes(self) -> set[int]:
        """All of this process namespace. Asked one by one: in /proc a process can hide, from us as well.

        When the numbers have begun again at the start, one that is higher than those we ask for is still our child, or
        will be once its parent has ended.
        """
        with open("/proc/loadavg", encoding="ascii") as file:
            last = int(file.read().split()[-1])
        if last < self._last:
            with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
                self._highest = int(file.read())
        self._last, self._highest = last, max(last, self._highest)
        return _list_children() | {pid for pid in range(2, self._highest + 1) if _is_there(pid)}

    def _most_redundant(self) -> int:
        cells = self.cells
        older = cells[:-RECENT]
        gaps = {cell: cells[at + 1] - (cells[at - 1] if at else 0) for at, cell in enumerate(older)}
        return min(gaps, key=gaps.__getitem__)


def _list_children() -> set[int]:
    with suppress(OSError), open("/proc/thread-self/children", encoding="ascii") as file:
        return set(map(int, file.read().split()))
    return set()


def _parse_ancillary(messages: list[tuple[int, int, bytes]]) -> tuple[int, list[int]]:
    """Who sent it, by the kernel's word, and the descriptors it came with."""
    sender, fds = 0, list[int]()
    for level, kind, data in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            sender = _SENDER.unpack(data[: _SENDER.size])[0]
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    return sender, fds


def _is_there(pid: int) -> bool:
    """As a process: `kill` takes the number of a thread for that of its process."""
    try:
        os.kill(pid, 0)
        os.close(os.pidfd_open(pid))
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _end_all(find: Callable[[], set[int]]) -> bool:
    """Kill what it finds until that is nothing, and wait for those that are our children. Whether there was time for it."""
    give_up_at = time.monotonic() + ENDING_S
    while pids := find():
        if time.monotonic() > give_up_at:
            return False
        for pid in pids:
            send_signal(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(AGAIN_S)
    return True
