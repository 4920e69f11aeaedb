"""A branch of a live session: a copy of its process that runs beside it, in the same namespaces, on the same data."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import cast

import anyio
from msgspec.structs import replace

from pinfold.sandbox.contract import Capabilities, Limits, SandboxUnavailable, UndoRefused
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import JailedProcess
from pinfold.sandbox.session.output import Output, widen
from pinfold.sandbox.session.session import GuestSession
from pinfold.sandbox.session.state_restore import wait_for_hello

THREADS = "Threads that ran in the session ({}) do not run in a branch of it, and what waits for them will wait."
READ_ONLY = "The workspace is read-only while a branch of the session is open."


class BranchProcess:
    """Of one branch. What else runs in the session is not its own."""

    out_of_memory = False
    report_fd = None

    def __init__(self, session: JailedProcess, pid: int, pidfd: int) -> None:
        """`pid` is what the session's init calls it."""
        self._session = session
        self.pid = pid
        self._pidfd = pidfd

    @property
    def fd(self) -> int:
        return self._pidfd

    def report(self) -> None:
        return None

    def prepare_close(self) -> None:
        pass

    def interrupt(self) -> None:
        self._session.signal_branch(self.pid, signal.SIGINT)

    async def wait_for_interrupt(self) -> None:
        await self._session.wait_for_interrupt()

    def end_program(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._session.signal_branch(self.pid, signal.SIGKILL)
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def poll(self) -> int | None:
        return None

    def reap(self) -> int:
        return -signal.SIGKILL

    def release(self) -> None:
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)

    async def report_end(self) -> None:
        """To the session's init, which then lets the session write again."""
        await self._session.ask(b"reap", {})


async def open_branch(guest: Guest, state: int, *, of: GuestSession, limits: Limits) -> Branch:
    """A branch of the session `of` from the state after this cell, of which a copy is kept. Raises UndoRefused."""
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
    outputs = Output("stdout", out, limits.output_bytes), Output("stderr", err, limits.output_bytes)
    branch_body = BranchProcess(body, answer["pid"], fds[0])
    fresh = Guest(branch_body, ours, *outputs)
    try:
        await wait_for_hello(fresh)
    except BaseException:
        await fresh.kill_and_wait("it was given up")
        raise
    branch = Branch(fresh, branch_body, ours, of=of, limits=limits)
    if threads := answer.get("threads"):
        branch.note_missing_threads(threads)
    return branch


class Branch(GuestSession):
    """Cannot be undone or branched itself."""

    def __init__(
        self, guest: Guest, body: BranchProcess, channel: socket.socket, *, of: GuestSession, limits: Limits
    ) -> None:
        super().__init__(launcher=_NoLauncher(), capabilities=_branch_capabilities(of.capabilities), limits=limits)
        self._guest = guest
        self._notices = (READ_ONLY,)
        self.body = body
        self.channel = channel

    def note_missing_threads(self, threads: int) -> None:
        """Those that ran in the session."""
        self._notices += (THREADS.format(threads),)

    async def close(self) -> None:
        was_open = not self._closed
        await super().close()
        if was_open:
            with anyio.CancelScope(shield=True), suppress(SandboxUnavailable):  # the session has ended as well
                await self.body.report_end()

    def hand_over(self) -> Guest:
        """Its guest, for the session that adopts it. The branch is closed then."""
        guest, self._guest, self._closed = self._guest, None, True
        if guest is None or guest.death is not None:
            raise SandboxUnavailable("the branch has ended; there is nothing left of it to keep")
        return guest


def _branch_capabilities(capabilities: Capabilities) -> Capabilities:
    return replace(capabilities, fork=False)


class _NoLauncher:
    """A branch that has ended cannot be begun again."""

    async def launch(self) -> Guest:
        raise SandboxUnavailable("the branch has ended, and its variables with it")

    async def sweep(self) -> None:
        """Its session's init does."""

    async def release(self) -> None:
        """Nothing was made for it."""
