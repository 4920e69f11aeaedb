"""A branch of a live session: a copy of its process that runs beside it, in the same namespaces, on the same data."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from dataclasses import replace

import anyio

from pinfold.sandbox._body import Jailed
from pinfold.sandbox._guest import Guest
from pinfold.sandbox._session import GuestSession
from pinfold.sandbox.contract import Capabilities, Limits, SandboxUnavailable

READ_ONLY = "The workspace is read-only while a branch of the session is open."


class BranchBody:
    """Of one branch. What else runs in the session is not its own."""

    out_of_memory = False
    report_fd = None

    def __init__(self, session: Jailed, pid: int, pidfd: int) -> None:
        """`pid` is what the session's init calls it."""
        self._session = session
        self.pid = pid
        self._pidfd = pidfd

    @property
    def fd(self) -> int:
        return self._pidfd

    def report(self) -> None:
        return None

    def closing(self) -> None:
        pass

    def interrupt(self) -> None:
        self._session.signal_branch(self.pid, signal.SIGINT)

    def end_program(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._session.signal_branch(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def poll(self) -> int | None:
        return None

    def reap(self) -> int:
        return -signal.SIGKILL

    def release(self) -> None:
        os.close(self._pidfd)

    async def known_to_have_ended(self) -> None:
        """To the session's init, which then lets the session write again."""
        await self._session.ask(b"reap", {})


class Branch(GuestSession):
    """Cannot be undone or branched itself."""

    def __init__(
        self, guest: Guest, body: BranchBody, channel: socket.socket, *, of: GuestSession, limits: Limits
    ) -> None:
        super().__init__(launcher=_Nowhere(), capabilities=_less(of.capabilities), limits=limits)
        self._guest = guest
        self._notices = (READ_ONLY,)
        self.body = body
        self.channel = channel

    async def close(self) -> None:
        was_open = not self._closed
        await super().close()
        if was_open:
            with (
                anyio.CancelScope(shield=True),
                suppress(SandboxUnavailable),
            ):  # the session has ended as well
                await self.body.known_to_have_ended()

    def given_up(self) -> Guest:
        """Its guest, for the session that adopts it. The branch is closed then."""
        guest, self._guest, self._closed = self._guest, None, True
        if guest is None or guest.death is not None:
            raise SandboxUnavailable("the branch has ended; there is nothing left of it to keep")
        return guest


def _less(capabilities: Capabilities) -> Capabilities:
    return replace(capabilities, fork=False)


class _Nowhere:
    """A branch that has ended cannot be begun again."""

    async def launch(self) -> Guest:
        raise SandboxUnavailable("the branch has ended, and its variables with it")

    async def sweep(self) -> None:
        """Its session's init does."""

    async def release(self) -> None:
        """Nothing was made for it."""
