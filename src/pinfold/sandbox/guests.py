"""Sessions whose guest is a process you confine: a provider that has nothing to add but a command line.

    async def open(self, spec: Spec) -> Session:
        return await open_guest(spec, self.capabilities, lambda program: ["my-jail", *program.argv])

Whatever the command does, three things must reach the guest: its descriptors, SIGINT sent to the command's
process group, and its end when the command is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import anyio

from pinfold.sandbox.contract import Capabilities, SandboxUnavailable, Session, Spec, refuse_extras
from pinfold.sandbox.kernel.folders import Folder
from pinfold.sandbox.session.deaths import Death
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Subprocess
from pinfold.sandbox.session.output import Output, widen
from pinfold.sandbox.session.saved_state_session import open_saved_state_session

__all__ = ["Confine", "GuestProgram", "open_guest"]

GUEST = Path(__file__).parent.parent / "guest"
SWEEPS = 20
"""Passes over the process list; a program that forks faster than we kill is left to the user."""
PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestProgram:
    """What is to be run and what it must find inside, each path under its own name."""

    argv: tuple[str, ...]
    workspace: Path
    scratch: Path
    """Its HOME and TMPDIR, writable; removed with the session."""
    needs: tuple[Path, ...]
    """Read-only: the interpreter with its packages, and the guest. The system's libraries are not named."""


Confine: TypeAlias = Callable[[GuestProgram], Sequence[str]]
"""From what is to be run to the command that runs it confined."""


async def open_guest(
    spec: Spec, capabilities: Capabilities, confine: Confine | None = None, *, python: Path | None = None
) -> Session:
    """A session whose guest runs as `confine` says, plainly unless given, in `python`, this one unless given.

    Raises SandboxUnavailable, and NotSupported where a view is asked for.
    """
    refuse_extras(spec, "this sandbox")
    guests = _Subprocesses(spec, confine, str(python or sys.executable))
    return await open_saved_state_session(guests, capabilities, spec)


class _Subprocesses:
    """Launches guests of one session; they share a private folder for HOME and TMPDIR."""

    def __init__(self, spec: Spec, confine: Confine | None, python: str) -> None:
        self._python = python
        self._spec = spec
        self._confine = confine
        self._private: Folder | None = None

    async def launch(self) -> Guest:
        if not self._python:
            raise SandboxUnavailable("this program does not know its own Python (sys.executable is empty)")
        if not self._spec.workspace.is_dir():
            raise SandboxUnavailable(f"the workspace {str(self._spec.workspace)!r} is not a folder; create it first")
        command: list[str] = []
        try:
            guest = self._spawn(command)
        except OSError as error:
            name = command[0] if command else self._python
            raise SandboxUnavailable(f"could not start {name!r}: {error}; is it still installed?") from error
        try:
            await self._wait_for_hello(guest, command[0])
        except BaseException:
            with anyio.CancelScope(shield=True):
                await guest.kill_and_wait("it was given up")
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

    def _spawn(self, command: list[str]) -> Guest:
        # On the event loop's own thread: the kernel ends the guest when the thread that made it ends.
        ours, theirs = socket.socketpair()
        stdout, stdout_in = os.pipe()
        stderr, stderr_in = os.pipe()
        widen(stdout)
        try:
            command += self._command(theirs.fileno())
            process = subprocess.Popen(
                command,
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
        outputs = Output("stdout", stdout, cap), Output("stderr", stderr, cap)
        guest = Guest(Subprocess(process), ours, *outputs)
        guest.scratch = str(self._scratch())
        return guest

    def _command(self, channel: int) -> Sequence[str]:
        # Confined, its parent may be a process we do not know, and bear another number inside.
        parent = os.getpid() if self._confine is None else 0
        argv = (self._python, "-I", str(GUEST / "__main__.py"), "serve", str(channel), str(parent))
        if self._confine is None:
            return argv
        home = Path(self._python).parent.parent
        needs = (home, Path(self._python).resolve().parent.parent, GUEST)
        needs += () if self._spec.site is None else (self._spec.site,)
        program = GuestProgram(argv=argv, workspace=self._spec.workspace, scratch=self._scratch(), needs=needs)
        return self._confine(program)

    async def _wait_for_hello(self, guest: Guest, name: str) -> None:
        with anyio.move_on_after(self._spec.limits.start_s):
            end = await guest.end()
            if isinstance(end, Death):
                said = guest.stderr.take()[0].strip()[-2000:]
                raise SandboxUnavailable(f"{name!r} did not become a guest: {end.how}; it said: {said!r}")
            return
        raise SandboxUnavailable(
            f"{name!r} did not answer within {self._spec.limits.start_s:g} s; is the machine overloaded?"
        )

    def _environment(self) -> dict[str, str]:
        """Nothing of ours goes in: no keys, no PYTHON*, no proxies."""
        private = str(self._scratch())
        given = {"LANG": "C.UTF-8", "PATH": os.environ.get("PATH", PATH), "HOME": private, "TMPDIR": private}
        return given if self._spec.site is None else {**given, "PINFOLD_SITE": str(self._spec.site)}

    def _scratch(self) -> Path:
        if self._private is None:
            self._private = Folder("home")
        return self._private.path


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
