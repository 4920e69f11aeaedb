"""The init's registry of copies: which exist, which to drop, and which processes end when a copy is woken.

The program can send anything on the line, so the init relies only on what the kernel confirms: who sent a message, and
that the process it names is a child of the init. A state that was kept once gets another copy only from the process
woken from it, or where the host asked for one: otherwise a cell could have itself woken in place of an earlier state.
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
"""Most copies of one session. Of the older ones, the copy closest to its neighbours is dropped first."""
RECENT = 6
"""The newest copies, which are kept unless memory runs out."""
LINE_BYTES = 256
LINES = 512
"""Most messages read in one call, more than the line holds: a program that keeps sending must not hold up the init."""
HIGHEST = 1 << 31
"""Numbers of cells and processes are below this."""
_SENDER = struct.Struct("3i")
_ROOM = socket.CMSG_SPACE(_SENDER.size) + socket.CMSG_SPACE(4)
AGAIN_S = 0.0005
LEAVING_S = 1.0
ENDING_S = 2.0
"""Time limit for SIGKILL to end everything; a fork bomb may make new processes for a while."""


class Snapshot:
    def __init__(self, cell: int, pid: int, threads: int, waker: socket.socket) -> None:
        self.cell = cell
        self.pid = pid
        self.threads = threads
        """The number of threads that it lacks because they ran when it was made."""
        self.waker = waker


class SnapshotRegistry:
    """The copies by the cell whose state they are; of one state only the newest copy is kept."""

    def __init__(self, line: socket.socket, runner: int) -> None:
        self.line = line
        """The socket on which the session's processes report copies."""
        self.runner = runner
        """The process that may leave copies of new states."""
        self.reserved: set[int] = set()
        """Children of the init that do not belong to the program."""
        line.setblocking(False)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._copies: dict[int, Snapshot] = {}
        self._seen: set[int] = set()
        """Every state that was ever kept."""
        self._awaited: dict[int, int] = {}
        """For a state that is to get another copy: the process that leaves it."""
        self._last = self._highest = 0
        """The last pid made when it was last read, and the highest pid that can exist."""

    @property
    def pids(self) -> set[int]:
        return {copy.pid for copy in self._copies.values()}

    @property
    def cells(self) -> list[int]:
        return sorted(self._copies)

    def accept_all(self) -> bool:
        """Register the copies reported so far. False if no more can come."""
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
        """Accept another copy of this state from the runner, for which the host has asked."""
        self._awaited[cell] = self.runner

    def await_snapshot(self, cell: int, limit_s: float = LEAVING_S) -> None:
        """Wait until a woken copy of this state has left another in its place, so that the next request finds it."""
        give_up_at = time.monotonic() + limit_s
        while cell not in self._copies and (left := give_up_at - time.monotonic()) > 0:
            if select.select([self.line], [], [], left)[0] and not self.accept_all():
                return

    def _parse_snapshot(self, message: bytes, sender: int, fds: list[int]) -> Snapshot | None:
        """Return the reported copy; None if the report is malformed or not confirmed."""
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
        """Return True if this is a living child of the init with no other role. Its pid is not reused until reaped."""
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
        """Return the copy of the last of these states that has one."""
        return next((self._copies[cell] for cell in reversed(cells) if cell in self._copies), None)

    def wake(self, cells: list[int], fds: list[int], word: bytes = FREED) -> Snapshot | None:
        """Wake the copy of the last of these states that has one, and pass it `fds`. None if there is none."""
        for cell in reversed(cells):
            copy = self._copies.pop(cell, None)
            if copy is None:
                continue
            with copy.waker, suppress(OSError):  # the copy has ended and is not reaped yet
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
        """Drop all other copies: their states cannot be restored, or are of cells that never ran."""
        self.drop([cell for cell in self._copies if cell not in cells])
        self._seen &= cells

    def hold_after(self, cell: int) -> None:
        """Stop the copies of later states, so that a process that only claims to be a copy cannot run on."""
        for copy in self._copies.values():
            if copy.cell > cell:
                os.kill(copy.pid, signal.SIGSTOP)

    def drop_oldest(self) -> bool:
        """Drop the oldest copy to free memory, but never the newest. False if there was none to drop."""
        if len(self._copies) < 2:
            return False
        self.drop([min(self._copies)])
        return True

    def forget_process(self, pid: int) -> bool:
        """Forget a process that has ended, because its pid may be reused. True if it was a copy."""
        self._awaited = {cell: by for cell, by in self._awaited.items() if by != pid}
        cells = [copy.cell for copy in self._copies.values() if copy.pid == pid]
        self.drop(cells)
        return bool(cells)

    def end_all_but(self, spared: set[int]) -> None:
        """End every process of the session except copies and `spared`."""
        spared = spared | self.pids | {os.getpid()}
        if not _end_all(lambda: self.list_processes() - spared):
            os.kill(-1, signal.SIGKILL)
            os._exit(0)  # better no session than one with a process that does not end
        self.accept_all()
        self._awaited = {cell: by for cell, by in self._awaited.items() if by in spared}

    def end_from(self, first: int, spared: set[int]) -> bool:
        """End every process with a pid from `first` on, except copies and `spared`. True if none is left."""
        spared = spared | self.pids | {os.getpid()}

        def find() -> set[int]:
            others = {pid for pid in self.list_processes() - spared if pid >= first}
            # After the pids have wrapped around, it is unknown which process is newer.
            return others if self._last >= first else set()

        return _end_all(find) and self._last >= first

    def end_orphans(self, spared: set[int]) -> None:
        """End processes whose parents have ended, and their descendants, except copies and `spared`."""
        self.accept_all()
        spared = spared | self.pids | {os.getpid()}

        def find() -> set[int]:
            orphans = _list_children() - spared
            return orphans | {one for pid in orphans for one in descendants(pid)}

        _end_all(find)

    def list_processes(self) -> set[int]:
        """Return all processes of this namespace. Tries each pid, because a process can hide in /proc, even from here.

        If the pids have wrapped around, a process above the range tried is a child of the init, or will be once its
        parent has ended.
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
    """Return the sender's pid, as the kernel reports it, and the descriptors that came with the message."""
    sender, fds = 0, list[int]()
    for level, kind, data in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            sender = _SENDER.unpack(data[: _SENDER.size])[0]
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    return sender, fds


def _is_there(pid: int) -> bool:
    """Return True if `pid` is a process. `kill` alone accepts the number of a thread too."""
    try:
        os.kill(pid, 0)
        os.close(os.pidfd_open(pid))
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _end_all(find: Callable[[], set[int]]) -> bool:
    """Kill and reap the processes that `find` returns until it returns none. False if the time limit passed first."""
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
