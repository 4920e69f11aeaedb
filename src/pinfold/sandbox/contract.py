"""The sandbox contract, which the rest of the product depends on. Contains no provider."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Meta, Struct, field

from pinfold.events import Json, PinfoldError, Unavailable, What

MOST_GROWTH = 10_000 << 20
"""Default limit, in bytes, on the growth of a session's writable folders; half of the free disk if that is less."""


class SandboxError(PinfoldError):
    """Base class. A failure of the program itself is never one of these: it is an Outcome."""


class SandboxUnavailable(SandboxError, Unavailable):
    """The sandbox cannot start or has failed. Says what failed and what the user can do; never shown to the model."""


class NotSupported(SandboxError):
    """The provider does not have this capability; ask `capabilities` first."""


class UndoRefused(SandboxError):
    """The requested state does not exist; the text says why. Nothing has changed."""


class FileRefused(SandboxError):
    """The path leaves the workspace, is missing or is too large; the text says which."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a provider can do. The engine reads this and never guesses."""

    isolated: bool
    fork: bool = False
    """The live process can be copied: fork, keep, and undo and redo by snapshot."""
    files_view: bool = False
    """A session can have its own view of the workspace files: `Spec.view`."""
    sockets: bool = False
    """Code inside may listen and connect on its own loopback."""
    mounts: bool = False
    """`Spec.data` is mounted at `data_places`; otherwise it is read at its own path, as `Spec.mounts` always are."""
    site: bool = False
    """Code inside can import the packages in `Spec.site`."""
    calls: bool = False
    """Code inside may call tools, if `run` is given `on_call`: `from _pinfold_guest.calls import call`."""
    durable: bool = False
    """`Spec.state` is supported, and sessions are `Resumable`."""
    commands: bool = False
    """`Session.command` is supported."""
    read_only_commands: bool = False
    """`command(..., read_only=True)` keeps a program from changing files, where the kernel supports that."""
    egress: bool = False
    """Code inside can be given network access through a proxy: `Spec.egress`."""
    remote: bool = False


def default_memory() -> int:
    """The smaller of 4 GiB and half of this machine's memory."""
    try:
        return min(4 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    except (OSError, ValueError):  # the system does not report it
        return 4 << 30


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of one session, for its waits and its buffers."""

    cell_s: float = 120.0
    shell_s: float = 30.0
    """How long a shell command may take."""
    interrupt_grace_s: float = 0.4
    """How long a cell may take to end after SIGINT before its process is killed."""
    start_s: float = 30.0
    reply_s: float = 10.0
    """How long a request that is not a cell may take: variables, put, get."""
    output_bytes: int = 64 << 20
    """Output kept for one stream of one cell; the rest is only counted and passed to `on_output`."""
    memory_bytes: int = field(default_factory=default_memory)
    """Memory the session may use."""
    processes: int = 256
    file_bytes: int = 64 << 20
    """Largest file `put` and `get` transfer."""
    disk_bytes: int | None = None
    """How much the writable folders may grow. Default: 10,000 MB or half of the free disk, whichever is less."""


DATASETS = "/mnt/datasets"
SERVERS = "/mnt/servers"
SKILLS = "/mnt/skills"


class Mount(Struct, frozen=True, kw_only=True):
    """A host path that a session sees at the same place."""

    path: Path
    writable: bool = False


def data_places(data: Mapping[str, Path]) -> dict[str, Path]:
    """Map the path at which a session sees each data source to its host path.

    A single source named "" is a folder that holds all of the data.
    """
    if set(data) == {""}:
        return {DATASETS: data[""]}
    return {f"{DATASETS}/{name or path.name}": path for name, path in data.items()}


class Spec(Struct, frozen=True, kw_only=True):
    """Describes the session to open."""

    workspace: Path
    writable: bool = True
    """Whether the session may change the workspace."""
    view: Path | None = None
    """A host folder that receives the session's changes to the workspace, which itself stays unchanged. It is empty, or
    was the view of an earlier session. Needs `Capabilities.files_view`."""
    data: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Read-only, at `data_places` where the provider has mounts, else at its own path."""
    servers: Path | None = None
    """A host folder, mounted read-only at /mnt/servers; not visible if the provider has no mounts."""
    skills: Path | None = None
    """Like `servers`, at /mnt/skills."""
    site: Path | None = None
    """A host folder, read-only at its own path inside. Each folder in it is appended to the session's import path, and
    may be added at any time. The environment variable PINFOLD_SITE holds its path."""
    mounts: tuple[Mount, ...] = ()
    """No mount may lie inside another or inside the workspace, or contain the workspace."""
    egress: Path | None = None
    """The unix socket of a host HTTP proxy, in a folder only the user can enter. It is the only network access; code
    inside finds it through HTTP_PROXY and HTTPS_PROXY. Needs `Capabilities.egress`."""
    limits: Limits = field(default_factory=Limits)
    state: Path | None = None
    """A host folder for this session alone, from which another process can resume it with its variables and its undo.
    Without it, both end with the session."""
    contents: Path | None = None
    """A host folder where all sessions of this workspace store file contents, so that each file is read only once."""

    @property
    def places(self) -> tuple[Path, ...]:
        """Host paths that code inside can read."""
        return (self.workspace, *self.data.values(), *(mount.path for mount in self.mounts))

    @property
    def writable_places(self) -> tuple[Path, ...]:
        """Host paths that code inside can change."""
        own = (self.workspace,) if self.writable and self.view is None else ()
        return (*own, *(mount.path for mount in self.mounts if mount.writable))


Status: TypeAlias = Literal["ok", "error", "interrupted", "timeout", "killed"]
Stream: TypeAlias = Literal["stdout", "stderr"]
COMMAND_BYTES = 16 << 20
"""Output kept for one stream of one command."""


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to a tool call made by a cell."""

    status: Literal["ok", "refused", "failed"]
    """`refused`: the tool was not run; the cell gets ToolRefused. `failed`: it ran and failed; ToolFailed."""
    value: Json = None
    """The result, or the reason why there is none."""


class Display(Struct, frozen=True, kw_only=True):
    """One rich value that a cell displayed, in one or more MIME representations."""

    mime: Mapping[str, bytes]


Lost: TypeAlias = tuple[
    Literal["to_numeric", "to_datetime", "to_timedelta", "dropna"],
    Annotated[int, Meta(gt=0)],
    Annotated[int, Meta(gt=0)],
]
"""Values or rows that a pandas function dropped at the code's request: the function, how many, out of how many."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How a cell ended."""

    status: Status
    value: str | None = None
    """Text of the last expression; None if there was none."""
    stdout: str = ""
    stderr: str = ""
    error: str | None = None
    """Trimmed traceback, or why the process ended."""
    displays: tuple[Display, ...] = ()
    duration_s: float = 0.0
    rolled_back: bool = False
    """True if the session is as it was before the cell."""
    state_lost: bool = False
    """True if the variables are gone because the interpreter was restarted empty."""
    lost: tuple[Lost, ...] = ()
    dropped_bytes: int = 0
    """Bytes of output beyond `Limits.output_bytes`, which were not kept."""
    notices: tuple[str, ...] = ()
    """What the sandbox did because of the cell, one line each, for the model and the user."""
    missing: str = ""
    """The package that provides a module the cell could not import. Reported by the guest, so it may be forged."""


How: TypeAlias = Literal["added", "changed", "removed"]


class ChangedFile(Struct, frozen=True, kw_only=True):
    """A workspace file that a cell changed."""

    path: str
    """Escaped for display on one line."""
    how: How
    before: bytes | None = None
    """Its content, if small and known; the same for `after`."""
    after: bytes | None = None


class ChangedFiles(Struct, frozen=True, kw_only=True):
    files: tuple[ChangedFile, ...] = ()
    """The first of the changed files."""
    more: int = 0
    """The number of changed files not listed."""


ReadOnly: TypeAlias = Literal["", "kept", "refused", "impossible"]
"""The result of running a command read-only: it tried no change (`kept`), it failed because a change was refused
(`refused`), or it was not run because this system cannot enforce read-only (`impossible`)."""


class CommandOutcome(Struct, frozen=True, kw_only=True):
    """How a program run by `command` ended."""

    status: Literal["ok", "error", "timeout"]
    """`ok`: it exited with 0. `error`: any other exit, or it could not be started; then `stderr` says why."""
    code: int | None = None
    """Its exit code, or the negated signal number; None if there is none or it is unknown."""
    stdout: bytes = b""
    stderr: bytes = b""
    dropped_bytes: int = 0
    """Bytes of output beyond `COMMAND_BYTES` per stream, which were not kept."""
    duration_s: float = 0.0
    rolled_back: bool = False
    """True if the interpreter died meanwhile; the session and its files are as before, and `stderr` says so."""
    notices: tuple[str, ...] = ()
    """What the sandbox did because of the command, one line each."""
    read_only: ReadOnly = ""


class Variable(Struct, frozen=True, kw_only=True):
    """One name in the session. Describing it never calls the user's code."""

    name: str
    type: str
    shape: str | None = None
    size: int | None = None
    """In bytes, if known without calling the user's code."""
    cell: int | None = None
    """The last cell that bound the name, counted from 1 since the interpreter started."""


class Label(Struct, frozen=True, kw_only=True):
    """What became of a variable when its session was resumed in another process."""

    name: str
    status: Literal["restored", "replayed", "lost"]
    """`replayed`: its cell, which only binds names, was run again."""
    reason: str = ""
    """Why it is lost, or a remark about a restored one."""


class Resumed(Struct, frozen=True, kw_only=True):
    cell: int
    """The variables are as after this cell (0: the start), except for lost ones."""
    missing: tuple[int, ...] = ()
    """Later cells, whose effects on variables are lost."""
    labels: tuple[Label, ...] = ()


OnOutput: TypeAlias = Callable[[Stream, str], None]
"""Called with all output as it arrives, in order within a stream. Must not block."""
OnCall: TypeAlias = Callable[[str, Mapping[str, Json]], Awaitable[Answer]]
"""Answers a call of the named tool. The arguments come unchecked from the program. Calls can overlap.
Cancelled if the cell ends first; an exception it raises ends the cell and is raised by `run`.
"""


class Session(Protocol):
    """One live interpreter with its workspace. Calls are serial; `interrupt` may come at any time."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
    ) -> Outcome:
        """Run one cell. Cancelling the awaiting task interrupts the cell and keeps the state. The time `on_call` takes
        does not count towards the limit. Raises SandboxUnavailable only if the sandbox itself
        fails; whatever the program does (exceptions, exit, crash, endless loop) is an Outcome.
        """
        ...

    async def interrupt(self) -> None:
        """Stop the running cell as Ctrl-C would. Does nothing if no cell runs."""

    async def fork(self) -> Session: ...

    async def keep(self, branch: Session) -> None: ...

    async def undo(self, to: int | None = None, what: What = "all") -> tuple[str, ...] | None:
        """Go back to before the last cell, or to the state after cell `to`. Returns notices. Raises UndoRefused."""
        ...

    async def redo(self) -> tuple[str, ...] | None:
        """Take back the last undo. Returns notices. Raises UndoRefused."""
        ...

    async def variables(self) -> tuple[Variable, ...]: ...

    async def put(self, path: str, data: bytes) -> None:
        """Write a file of the workspace. Raises FileRefused."""

    async def get(self, path: str) -> bytes:
        """Read a file of the workspace. Raises FileRefused."""
        ...

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        workdir: str = "",
        on_output: OnOutput | None = None,
        read_only: bool = False,
    ) -> CommandOutcome:
        """Run a program with the same rights as a cell, and wait for it. Raises NotSupported without `commands`.

        With `read_only`, which needs its own capability, the program and its children can change files only in their
        scratch folder, TMPDIR; `CommandOutcome.read_only` reports the result. `env` replaces the interpreter's
        environment, except TMPDIR; `workdir` is relative to the workspace. On timeout or cancellation the whole process
        group ends; otherwise its background processes keep running, and their output is dropped. A command is not a
        cell: variables and saved states stay, and undo does not cover the files it changes.
        While `on_call` answers a call, the command belongs to the calling cell: it runs at once, undo of the cell
        covers its changes, and the cell's clock is paused. If the cell ends first, the outcome is an `error` that
        says so.
        """
        ...

    async def close(self) -> None:
        """End every process of the session. Idempotent."""


@runtime_checkable
class Resumable(Session, Protocol):
    """A session of a durable provider."""

    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
        cell: int | None = None,
    ) -> Outcome:
        """Run one cell. `cell` is its number, higher than all before; by default one more than the last."""
        ...

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        workdir: str = "",
        on_output: OnOutput | None = None,
        cell: int | None = None,
        read_only: bool = False,
    ) -> CommandOutcome:
        """Run a program. With `cell`, numbered as for `run`, it counts as a cell: it is on the path, and undo and redo
        cover its files. Undo also ends what it left running. `cell=0` takes the number after the last; None means no
        undo. `cell` is ignored while a call is answered: the command then belongs to the running cell.
        """
        ...

    def pause_clock(self) -> AbstractContextManager[None]:
        """Pause the clock of the running cell inside the `with` block, because the cell waits for the host."""
        ...

    @property
    def path(self) -> tuple[int, ...]:
        """The cells whose effects are present, in order; undone cells are left out."""
        ...

    @property
    def changed_files(self) -> ChangedFiles:
        """Files changed by the last cell, or the last command that counted as one, except Git's own and bytecode."""
        ...

    @property
    def resumed(self) -> Resumed | None:
        """What was restored from another process; None for a new session."""
        ...

    async def describe_uncovered(self) -> tuple[str, ...]:
        """Return what undo does not cover, one line each. After this, the first cell no longer reports it."""
        ...


class Provider(Protocol):
    """Opens sessions. Third parties register a factory of providers as entry point `pinfold.sandboxes`."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def notice(self) -> str | None:
        """A warning that front ends show as it is; None if there is none, or none known before `open`."""
        ...

    async def open(self, spec: Spec) -> Session:
        """Open a session whose interpreter has answered. Raises SandboxUnavailable, NotSupported."""
        ...
