"""Provider `unsafe-local`: a plain subprocess of this interpreter. It isolates nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio

from pinfold.sandbox._body import Subprocess
from pinfold.sandbox._guest import Death, Guest
from pinfold.sandbox._output import Output, widen
from pinfold.sandbox._session import GuestSession
from pinfold.sandbox.contract import Capabilities, SandboxUnavailable, Session, Spec
from pinfold.sandbox.folders import Folder

GUEST = Path(__file__).parent.parent / "guest" / "__main__.py"
SWEEPS = 20
"""Passes over the process list; a program that forks faster than we kill is left to the user."""
PATH = "/usr/local/bin:/usr/bin:/bin"
NOTICE = (
    "unsafe-local does not isolate anything: code runs as you, with your files and your network. "
    "Use it only for code you would run yourself."
)


class UnsafeLocal:
    """Sessions that are subprocesses with a clean environment, a process group of their own and nothing more."""

    @property
    def name(self) -> str:
        return "unsafe-local"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(isolated=False, sockets=True)

    @property
    def notice(self) -> str:
        return NOTICE

    async def open(self, spec: Spec) -> Session:
        return await GuestSession.opened(_Subprocesses(spec), self.capabilities, spec.limits)


class _Subprocesses:
    """Launches guests of one session; they share a private folder for HOME and TMPDIR."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._private: Folder | None = None

    async def launch(self) -> Guest:
        if not sys.executable:
            raise SandboxUnavailable("this program does not know its own Python (sys.executable is empty)")
        if not self._spec.workspace.is_dir():
            raise SandboxUnavailable(
                f"the workspace {str(self._spec.workspace)!r} is not a folder; create it first"
            )
        try:
            guest = self._spawn()
        except OSError as error:
            raise SandboxUnavailable(
                f"could not start {sys.executable!r}: {error}; is it still installed?"
            ) from error
        try:
            await self._greeted(guest)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await guest.ended("it was given up")
            raise
        return guest

    async def sweep(self) -> None:
        """Ends processes that left the group, known by the TMPDIR they were born with."""
        if self._private is not None and sys.platform == "linux":
            await anyio.to_thread.run_sync(end_marked, self._private.path)

    async def release(self) -> None:
        await self.sweep()
        if self._private is not None:
            await anyio.to_thread.run_sync(self._private.remove)

    def _spawn(self) -> Guest:
        # On the event loop's own thread: the kernel ends the guest when the thread that made it ends.
        ours, theirs = socket.socketpair()
        stdout, stdout_in = os.pipe()
        stderr, stderr_in = os.pipe()
        widen(stdout)
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", str(GUEST), "serve", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=stdout_in,
                stderr=stderr_in,
                pass_fds=[theirs.fileno()],
                cwd=self._spec.workspace,
                env=self._environment(),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(stdout)
            os.close(stderr)
            raise
        finally:
            theirs.close()
            os.close(stdout_in)
            os.close(stderr_in)
        cap = self._spec.limits.output_bytes
        return Guest(Subprocess(process), ours, Output("stdout", stdout, cap), Output("stderr", stderr, cap))

    async def _greeted(self, guest: Guest) -> None:
        with anyio.move_on_after(self._spec.limits.start_s):
            end = await guest.end()
            if isinstance(end, Death):
                said = guest.stderr.take()[0].strip()[-2000:]
                raise SandboxUnavailable(
                    f"{sys.executable!r} did not become a guest: {end.how}; it said: {said!r}"
                )
            return
        raise SandboxUnavailable(
            f"{sys.executable!r} did not answer within {self._spec.limits.start_s:g} s; is the machine overloaded?"
        )

    def _environment(self) -> dict[str, str]:
        """Nothing of ours goes in: no keys, no PYTHON*, no proxies."""
        if self._private is None:
            self._private = Folder("home")
        private = str(self._private.path)
        return {"LANG": "C.UTF-8", "PATH": os.environ.get("PATH", PATH), "HOME": private, "TMPDIR": private}


def end_marked(private: Path, *, dry_run: bool = False) -> list[int]:
    """End the processes that were born with this folder as TMPDIR; returns them."""
    mark = b"\0TMPDIR=" + os.fsencode(private) + b"\0"
    ended: list[int] = []
    for _ in range(SWEEPS):
        found = [pid for pid in _pids() if mark in _environ(pid)]
        ended += [pid for pid in found if pid not in ended]
        if not found or dry_run:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return ended


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only, often


def _environ(pid: int) -> bytes:
    try:
        return b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return b""
