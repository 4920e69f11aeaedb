"""Sessions whose guest is a process confined by a command line, for providers that add nothing else.

    async def open(self, spec: Spec) -> Session:
        return await open_guest(spec, self.capabilities, lambda program: ["my-jail", *program.argv])

Whatever the command does, the guest must inherit its file descriptors, receive a SIGINT sent to the command's
process group, and end when the command is killed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import anyio

from pinfold.sandbox.contract import Capabilities, NotSupported, SandboxUnavailable, Session, Spec
from pinfold.sandbox.file_history.session_history import FileHistory
from pinfold.sandbox.kernel.folders import TemporaryFolder
from pinfold.sandbox.kernel.processes import GUEST, end_marked
from pinfold.sandbox.providers.launcher import start_guest
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Subprocess
from pinfold.sandbox.session.guest_slot import Launcher
from pinfold.sandbox.session.output import Output
from pinfold.sandbox.session.session import GuestSession
from pinfold.sandbox.session.state_restore import PreparedGuests, SavedForks

__all__ = ["Confine", "GuestProgram", "open_guest"]

PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestProgram:
    """The program to run, and the paths it must find inside under the same names as outside."""

    argv: tuple[str, ...]
    workspace: Path
    scratch: Path
    """Writable folder for HOME and TMPDIR; removed with the session."""
    needs: tuple[Path, ...]
    """Read-only paths: the interpreter with its packages, and the guest program. System libraries are not listed."""


Confine: TypeAlias = Callable[[GuestProgram], Sequence[str]]
"""Maps a program to the command that runs it confined."""


async def open_guest(
    spec: Spec, capabilities: Capabilities, confine: Confine | None = None, *, python: Path | None = None
) -> Session:
    """Open a session whose guest runs in `python` (default: this one) by the command that `confine` returns.

    Without `confine` the guest is not confined. Raises SandboxUnavailable, or NotSupported for a view or egress.
    """
    refuse_extras(spec, "this sandbox")
    guests = _Subprocesses(spec, confine, str(python or sys.executable))
    return await open_saved_state_session(guests, capabilities, spec)


def refuse_extras(spec: Spec, name: str) -> None:
    """Raise NotSupported if the spec asks for a view or egress."""
    if spec.view is not None:
        raise NotSupported(f"{name} cannot give a session a private view of the workspace; `namespaces` can")
    if spec.egress is not None:
        raise NotSupported(f"{name} cannot give a session access to listed hosts; `namespaces` can")


async def open_saved_state_session(launcher: Launcher, capabilities: Capabilities, spec: Spec) -> GuestSession:
    """Open a session whose guests cannot be copied. With `spec.state` it can be resumed and undone."""
    if spec.state is None or not capabilities.durable:
        return await GuestSession.open(launcher, capabilities, spec, None)

    async def begin_files() -> FileHistory | str:
        return await anyio.to_thread.run_sync(FileHistory.create_if_possible, spec)

    return await GuestSession.open(
        PreparedGuests(launcher), capabilities, spec, SavedForks, begin_files if spec.writable else None
    )


class _Subprocesses:
    """Launches the guests of one session, which share a private folder for HOME and TMPDIR."""

    def __init__(self, spec: Spec, confine: Confine | None, python: str) -> None:
        self._python = python
        self._spec = spec
        self._confine = confine
        self._private: TemporaryFolder | None = None

    async def launch(self) -> Guest:
        if not self._python:
            raise SandboxUnavailable("the path of this program's Python is unknown (sys.executable is empty)")
        if not self._spec.workspace.is_dir():
            raise SandboxUnavailable(f"the workspace {str(self._spec.workspace)!r} is not a folder; create it first")
        command: list[str] = []
        try:
            guest = self._spawn(command)
        except OSError as error:
            name = command[0] if command else self._python
            raise SandboxUnavailable(f"could not start {name!r}: {error}; is it still installed?") from error
        return await start_guest(guest, self._spec.limits, name=repr(command[0]))

    async def sweep(self) -> None:
        """End processes that left the process group; they are recognised by their initial TMPDIR."""
        if self._private is not None and sys.platform == "linux":
            await anyio.to_thread.run_sync(end_marked, self._private.path)

    async def release(self) -> None:
        await self.sweep()
        if self._private is not None:
            await anyio.to_thread.run_sync(self._private.remove)

    def _spawn(self, command: list[str]) -> Guest:
        # On the event loop's own thread: the kernel kills the guest when the thread that started it ends.
        ours, theirs = socket.socketpair()
        stdout, stdout_in = os.pipe()
        stderr, stderr_in = os.pipe()
        with ExitStack() as on_failure, ExitStack() as at_end:
            on_failure.callback(ours.close)
            at_end.callback(theirs.close)
            for fd, end in ((stdout, on_failure), (stderr, on_failure), (stdout_in, at_end), (stderr_in, at_end)):
                end.callback(os.close, fd)
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
            on_failure.pop_all()
        cap = self._spec.limits.output_bytes
        outputs = Output("stdout", stdout, cap), Output("stderr", stderr, cap)
        guest = Guest(Subprocess(process), ours, *outputs)
        guest.scratch = str(self._scratch())
        return guest

    def _command(self, channel: int) -> Sequence[str]:
        # A confined guest's parent may be another process, or have another pid inside.
        parent = os.getpid() if self._confine is None else 0
        argv = (self._python, "-I", str(GUEST / "__main__.py"), "serve", str(channel), str(parent))
        if self._confine is None:
            return argv
        home = Path(self._python).parent.parent
        needs = (home, Path(self._python).resolve().parent.parent, GUEST)
        needs += () if self._spec.site is None else (self._spec.site,)
        program = GuestProgram(argv=argv, workspace=self._spec.workspace, scratch=self._scratch(), needs=needs)
        return self._confine(program)

    def _environment(self) -> dict[str, str]:
        """The guest's environment, with nothing from this process but PATH: no keys, no PYTHON*, no proxies."""
        private = str(self._scratch())
        # Many systems have no `python`; where there is one, it comes first.
        path = f"{os.environ.get('PATH', PATH)}:{Path(self._python).parent}"
        given = {"LANG": "C.UTF-8", "PATH": path, "HOME": private, "TMPDIR": private}
        return given if self._spec.site is None else {**given, "PINFOLD_SITE": str(self._spec.site)}

    def _scratch(self) -> Path:
        if self._private is None:
            self._private = TemporaryFolder("home")
        return self._private.path


NOTICE = (
    "unsafe-local does not isolate anything: code runs as you, with your files and your network. "
    "Use it only for code you would run yourself."
)


class UnsafeLocal:
    """Runs sessions as subprocesses with a clean environment and their own process group, and no isolation."""

    name = "unsafe-local"
    notice = NOTICE
    capabilities = Capabilities(
        isolated=False, sockets=True, site=True, calls=True, commands=True, read_only_commands=True, durable=True
    )

    def __init__(self, python: Path | None = None) -> None:
        """`python` runs the cells; the default is this one."""
        self._python = python

    async def open(self, spec: Spec) -> Session:
        return await open_guest(spec, self.capabilities, python=self._python)
