"""The process a guest runs in, as the host controls it: interrupt it, end it, and learn how it ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from pinfold.events import Json
from pinfold.sandbox.contract import SandboxUnavailable
from pinfold.sandbox.guards.ports import Mounts
from pinfold.sandbox.session.channel import Reply


class Death(Struct, frozen=True, kw_only=True):
    """How a guest process ended."""

    how: str
    """For the user: "it exited with code 3", "it was killed by SIGSEGV"."""
    ours: bool = False
    """True if the host killed it; `how` is then the host's reason."""
    cells: tuple[int, ...] = ()
    """Cells whose states can be woken, if the session lives on; else empty."""


End: TypeAlias = Reply | Death


def how_it_died(code: int) -> str:
    if code >= 0:
        return f"it exited with code {code}"
    try:
        return f"it was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"


MESSAGE_BYTES = 1 << 16
INIT_S = 10.0
REPORT_BYTES = 4096
GUARD_S = 1.0
"""Longest wait for a mount, which takes microseconds; an init that takes longer is being held up."""


@contextmanager
def open_request_file(request: Mapping[str, object]) -> Generator[int]:
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        os.write(fd, json.dumps(request).encode())
        yield fd
    finally:
        os.close(fd)


class LauncherGone(SandboxUnavailable):
    """The launcher ended before it started the session; a new launcher can be started."""


async def send_request(
    peer: socket.socket,
    message: bytes,
    request: Mapping[str, object],
    limit_s: float,
    fds: Sequence[int] = (),
    *,
    who: str = "the launcher of sessions",
) -> tuple[bytes, list[int]]:
    """Send a request with `fds` and a new socket for the answer. Returns the answer and its file descriptors.

    Raises SandboxUnavailable.
    """
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open_request_file(request) as fd:
        try:
            socket.send_fds(peer, [message], [fd, theirs.fileno(), *fds])
            theirs.close()
            loop.add_reader(ours.fileno(), came.set)
            try:
                await asyncio.wait_for(came.wait(), limit_s)
            finally:
                loop.remove_reader(ours.fileno())
            words, given, _, _ = socket.recv_fds(ours, MESSAGE_BYTES, 8)
        except (BrokenPipeError, ConnectionError) as error:
            raise LauncherGone(f"{who} is gone: {error}") from error
        except OSError as error:  # includes TimeoutError
            raise SandboxUnavailable(f"{who} does not answer: {error}") from error
    return words, given


class ProgramEnd(Struct, frozen=True, kw_only=True):
    """How a program ended, reported by its init; the session may live on."""

    code: int
    out_of_memory: bool
    cells: tuple[int, ...]
    """Cells whose states can be woken in its place; empty if the session ends."""


class GuestProcess:
    """The process a guest runs in. In this base class it ends with its program and reports nothing."""

    out_of_memory = False
    """Set by `reap`: it was killed because the session used too much memory."""
    report_fd: int | None = None
    """Readable when `report` should be called; None if the process ends with its program."""

    def __init__(self, fd: int | None) -> None:
        """`fd` becomes readable when the process ends; None where the kernel has no pidfd, and after `release`."""
        self.fd = fd

    def report(self) -> ProgramEnd | None:
        return None

    def end_program(self) -> None:
        """End the program and what it started; a report follows if there is a state to wake."""
        self.kill()

    def prepare_close(self) -> None:
        """Make the process end when its program ends."""

    def interrupt(self) -> None:
        raise NotImplementedError

    async def wait_for_interrupt(self) -> None:
        """Wait until the last interrupt has arrived, so that no later program gets it. Raises SandboxUnavailable."""

    def kill(self) -> None:
        """End it and everything it started."""
        if self.fd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.fd, signal.SIGKILL)

    def poll(self) -> int | None:
        """Return the exit code if it is known to have ended, else None. Does not block."""
        return None

    def reap(self) -> int:
        """Return the exit code, or negated signal number, of the ended process. Ends what it left running."""
        return -signal.SIGKILL

    def release(self) -> None:
        """Close the file descriptors. Idempotent, because their numbers may be reused by another session."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)


class Subprocess(GuestProcess):
    """A plain process that leads its own process group."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        try:
            super().__init__(os.pidfd_open(process.pid))
        except (AttributeError, OSError):  # not Linux, or Linux before 5.3
            super().__init__(None)

    def interrupt(self) -> None:
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self._process.poll()

    def reap(self) -> int:
        # Before the process is reaped, while the group's number cannot be reused.
        self.kill()
        return self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


class JailedProcess(GuestProcess):
    """A session in its own namespaces, controlled through its init. When the init ends, everything in it ends."""

    def __init__(self, control: socket.socket, pidfd: int) -> None:
        """`pidfd` is the init's, which ends only after everything else in the session."""
        super().__init__(pidfd)
        control.setblocking(False)
        self._control = control
        self.report_fd = control.fileno()

    def report(self) -> ProgramEnd | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(self._control.recv(REPORT_BYTES))
            return ProgramEnd(
                code=int(said["code"]),
                out_of_memory=bool(said["out_of_memory"]),
                cells=tuple(map(int, said.get("cells", ()))),
            )
        return None

    def end_program(self) -> None:
        self._say(b"end")

    def prepare_close(self) -> None:
        self._say(b"close")

    async def ask(self, words: bytes, request: Mapping[str, object], *fds: int) -> tuple[dict[str, Json], list[int]]:
        """Send a request to the init. Returns its answer and file descriptors. Raises SandboxUnavailable."""
        answer, given = await send_request(self._control, words, request, INIT_S, fds, who="the session's init")
        return json.loads(answer or b"{}"), given

    def signal_branch(self, pid: int, number: int) -> None:
        with open_request_file({"pid": pid, "signal": number}) as fd, suppress(OSError):
            socket.send_fds(self._control, [b"signal"], [fd])

    def interrupt(self) -> None:
        self._say(b"interrupt")

    async def wait_for_interrupt(self) -> None:
        await self.ask(b"reap", {})  # the init handles messages in order, so it has sent the signal by then

    def _say(self, words: bytes) -> None:
        with suppress(OSError):
            self._control.send(words)

    def guard(self, mounts: Mounts) -> None:
        """Have the init mount these in the live session. The guard checks at cell ends what could not be mounted."""
        self._ask_now(b"guard", asdict(mounts))

    def has_leftovers(self) -> bool:
        """Return True if anything may run between cells: another process, a thread, a signal handler."""
        try:
            return bool(json.loads(self._ask_now(b"leftovers", {})).get("running", True))
        except ValueError:
            return True

    def _ask_now(self, words: bytes, request: Mapping[str, object]) -> bytes:
        """Ask the init and block the event loop until it answers. Returns b"" if no answer came in time."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, open_request_file(request) as sheet, suppress(OSError):
            socket.send_fds(self._control, [words], [sheet, theirs.fileno()])
            theirs.close()
            ours.settimeout(GUARD_S)
            return ours.recv(MESSAGE_BYTES)
        return b""

    def reap(self) -> int:
        report = self.report()
        if report is None:
            return -signal.SIGKILL
        self.out_of_memory = report.out_of_memory
        return report.code

    def release(self) -> None:
        self.report_fd = None
        self._control.close()
        super().release()


class WatchedProcess(JailedProcess):
    """A session without a process namespace. Its init ends all of it, then itself, when the host closes the socket."""

    def __init__(self, control: socket.socket, pidfd: int) -> None:
        super().__init__(control, pidfd)
        self.report_fd = None

    def end_program(self) -> None:
        self.kill()

    def prepare_close(self) -> None:
        pass

    def kill(self) -> None:
        # Do not kill the init: only the init knows which processes belong to the session.
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
