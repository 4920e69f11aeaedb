"""A branch of a live session: a copy of its process that runs beside it, in the same namespaces, on the same data."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import cast

from pinfold.sandbox.contract import Limits, SandboxUnavailable, UndoRefused
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import GuestProcess, JailedProcess
from pinfold.sandbox.session.output import Output, widen
from pinfold.sandbox.session.state_restore import wait_for_hello

THREADS = "Threads that ran in the session ({}) do not run in a branch of it, and what waits for them will wait."
READ_ONLY = "The workspace is read-only while a branch of the session is open."


class BranchProcess(GuestProcess):
    """Of one branch. What else runs in the session is not its own."""

    def __init__(self, session: JailedProcess, pid: int, pidfd: int) -> None:
        """`pid` is what the session's init calls it."""
        self._session = session
        self.pid = pid
        self._pidfd = pidfd

    @property
    def fd(self) -> int:
        return self._pidfd

    def interrupt(self) -> None:
        self._session.signal_branch(self.pid, signal.SIGINT)

    async def wait_for_interrupt(self) -> None:
        await self._session.wait_for_interrupt()

    def kill(self) -> None:
        self._session.signal_branch(self.pid, signal.SIGKILL)
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def release(self) -> None:
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)

    async def report_end(self) -> None:
        """To the session's init, which then lets the session write again."""
        await self._session.ask(b"reap", {})


async def open_branch(guest: Guest, state: int, limits: Limits) -> tuple[Guest, tuple[str, ...]]:
    """The guest of a branch from the state after this cell, of which a copy is kept, and its notices. Raises UndoRefused."""
    body = cast("JailedProcess", guest.body)
    ours, theirs = socket.socketpair()
    (out, out_in), (err, err_in) = os.pipe(), os.pipe()
    widen(out)
    try:
        with theirs:
            answer, fds = await body.ask(b"branch", {"cells": [state]}, theirs.fileno(), out_in, err_in)
    finally:
        os.close(out_in)
        os.close(err_in)
    if answer.get("cell") != state:
        ours.close()
        os.close(out)
        os.close(err)
        raise UndoRefused(f"the session cannot branch: {answer.get('error', 'no copy of its state is there')}")
    outputs = Output("stdout", out, limits.stream_bytes), Output("stderr", err, limits.stream_bytes)
    fresh = Guest(BranchProcess(body, answer["pid"], fds[0]), ours, *outputs)
    try:
        await wait_for_hello(fresh)
    except BaseException:
        await fresh.kill_and_wait("it was given up")
        raise
    threads = answer.get("threads")
    return fresh, (READ_ONLY, THREADS.format(threads)) if threads else (READ_ONLY,)


async def adopt_branch(guest: Guest, kept: Guest) -> Guest:
    """The branch's program goes on as the session's: it takes the place of `guest`."""
    body, branch = cast("JailedProcess", guest.body), cast("BranchProcess", kept.body)
    guest.leave()
    kept.leave()
    await body.ask(b"adopt", {"pid": branch.pid})
    branch.release()
    guest.let_go()
    adopted = Guest(body, kept.channel, kept.stdout, kept.stderr, greeted=True)
    adopted.guard, adopted.copies = guest.guard, guest.copies
    return adopted


class BranchLauncher:
    """A branch that has ended cannot be started again."""

    def __init__(self, guest: Guest) -> None:
        self._body = cast("BranchProcess", guest.body)

    async def launch(self) -> Guest:
        raise SandboxUnavailable("the branch has ended, and its variables with it")

    async def sweep(self) -> None:
        """The session's init does."""

    async def release(self) -> None:
        with suppress(SandboxUnavailable):  # the session has ended as well
            await self._body.report_end()
