"""What a sandbox is to the rest of the product. No provider lives here."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Meta, Struct, field

from pinfold.events import Json, PinfoldError, Unavailable, What

MOST_GROWTH = 10_000 << 20
"""Of the folders a session may change, unless set; or half of what is free, if that is less."""


class SandboxError(PinfoldError):
    """Base. None of these is the program's own failure; that is an Outcome."""


class SandboxUnavailable(SandboxError, Unavailable):
    """Ours: it cannot start, or it broke. Says what failed and what the user can do; never shown to the model."""


class NotSupported(SandboxError):
    """The provider does not have this capability; ask `capabilities` first."""


class UndoRefused(SandboxError):
    """There is no such state to go to; the text says why. Nothing has changed."""


class FileRefused(SandboxError):
    """`put` or `get` of a path that leaves the workspace, is missing or is too large; says which."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a provider can do. The engine asks, never guesses."""

    isolated: bool
    fork: bool = False
    """Live copies: fork, keep, undo and redo by snapshot."""
    files_view: bool = False
    """A session can have its own view of the workspace files: `Spec.view`."""
    sockets: bool = False
    """Code inside may listen and connect on its own loopback."""
    mounts: bool = False
    """`data` is at `data_places`; without, it is read at its own path, as is `Spec.mounts` everywhere."""
    site: bool = False
    """What is put into `Spec.site` can be imported inside."""
    calls: bool = False
    """Code inside may call tools, if `run` is given `on_call`: `from _pinfold_guest.calls import call`."""
    durable: bool = False
    """What `Spec.state` is for; its sessions are `Resumable`."""
    commands: bool = False
    """`command` runs programs beside the cells."""
    read_only_commands: bool = False
    """`command(..., read_only=True)` lets a program change no file, where the kernel can."""
    egress: bool = False
    """Code inside can be given a way out: `Spec.egress`."""
    remote: bool = False


def default_memory() -> int:
    """The smaller of 4 GiB and half of this machine's memory."""
    try:
        return min(4 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    except (OSError, ValueError):  # a system that does not say
        return 4 << 30


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of one session; every wait and every buffer has its name here."""

    cell_s: float = 120.0
    shell_s: float = 30.0
    """How long a shell command may take."""
    interrupt_grace_s: float = 0.4
    """How long a cell may take to end after SIGINT before its process is killed."""
    start_s: float = 30.0
    reply_s: float = 10.0
    """How long anything that is not a cell may take: variables, put, get."""
    output_bytes: int = 64 << 20
    """Kept of one stream of one cell; the rest is counted, and goes by `on_output` only."""
    memory_bytes: int = field(default_factory=default_memory)
    """What the session may take."""
    processes: int = 256
    file_bytes: int = 64 << 20
    """Largest file `put` and `get` carry."""
    disk_bytes: int | None = None
    """By which the folders it may change may grow; the smaller of 10,000 MB and half of the free disk unless set."""


DATASETS = "/mnt/datasets"
SERVERS = "/mnt/servers"
SKILLS = "/mnt/skills"


class Mount(Struct, frozen=True, kw_only=True):
    """A path of the host's that a session sees at the same place."""

    path: Path
    writable: bool = False


def data_places(data: Mapping[str, Path]) -> dict[str, Path]:
    """By where a session sees it. The name "" stands for a folder that is all of the data, if it is."""
    if set(data) == {""}:
        return {DATASETS: data[""]}
    return {f"{DATASETS}/{name or path.name}": path for name, path in data.items()}


class Spec(Struct, frozen=True, kw_only=True):
    """What to open."""

    workspace: Path
    writable: bool = True
    """Whether the session may change the workspace."""
    view: Path | None = None
    """A folder of the host's, empty or of an earlier session with this view: what the session changes in the workspace
    goes there, and the workspace stays as it is. Needs `Capabilities.files_view`."""
    data: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Read-only, at `data_places` where the provider has mounts, else at its own path."""
    servers: Path | None = None
    """A folder of the host's, read-only at /mnt/servers where the provider has mounts; else nowhere."""
    skills: Path | None = None
    """As `servers`, at /mnt/skills."""
    site: Path | None = None
    """A folder of the host's, read-only at its own path inside: each folder in it is on the session's import path,
    after everything else, and may appear at any time. Its name goes in as environment variable PINFOLD_SITE."""
    mounts: tuple[Mount, ...] = ()
    """None lies in another, in the workspace, or around it."""
    egress: Path | None = None
    """The unix socket of an HTTP proxy of the host's, in a folder of its user's alone: the only way out there is, which
    programs inside find as HTTP_PROXY and HTTPS_PROXY. Needs `Capabilities.egress`."""
    limits: Limits = field(default_factory=Limits)
    state: Path | None = None
    """A folder of the host's for this session alone, in which is kept what it takes to go on in another process. Opened
    with it again, a session has its variables and its undo; without, they end with it."""
    contents: Path | None = None
    """A folder of the host's in which all sessions of this workspace keep what its files hold, so that each is read once."""

    @property
    def places(self) -> tuple[Path, ...]:
        """Of the host's, that code inside can read."""
        return (self.workspace, *self.data.values(), *(mount.path for mount in self.mounts))

    @property
    def writable_places(self) -> tuple[Path, ...]:
        """Of the host's, that code inside can change."""
        own = (self.workspace,) if self.writable and self.view is None else ()
        return (*own, *(mount.path for mount in self.mounts if mount.writable))


Status: TypeAlias = Literal["ok", "error", "interrupted", "timeout", "killed"]
Stream: TypeAlias = Literal["stdout", "stderr"]
COMMAND_BYTES = 16 << 20
"""Kept of one stream of one command."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a cell gets for a call of a tool."""

    status: Literal["ok", "refused", "failed"]
    """`refused`: it was not run; the cell gets ToolRefused. `failed`: it was, in vain; the cell gets ToolFailed."""
    value: Json = None
    """The result, or why there is none."""


class Display(Struct, frozen=True, kw_only=True):
    """Something rich the cell showed: one value, several representations."""

    mime: Mapping[str, bytes]


Lost: TypeAlias = tuple[
    Literal["to_numeric", "to_datetime", "to_timedelta", "dropna"],
    Annotated[int, Meta(gt=0)],
    Annotated[int, Meta(gt=0)],
]
"""What pandas left out because the code said so: by which function, how many values or rows, of how many."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How a cell ended."""

    status: Status
    value: str | None = None
    """Text of the last expression, None when there was none."""
    stdout: str = ""
    stderr: str = ""
    error: str | None = None
    """Trimmed traceback, or why the process is gone."""
    displays: tuple[Display, ...] = ()
    duration_s: float = 0.0
    rolled_back: bool = False
    """The session is as it was before the cell."""
    state_lost: bool = False
    """The interpreter was restarted empty; variables are gone."""
    lost: tuple[Lost, ...] = ()
    dropped_bytes: int = 0
    """Output beyond `Limits.output_bytes`, counted and not kept."""
    notices: tuple[str, ...] = ()
    """What the sandbox did about the cell, a line each: for the model and the user."""
    missing: str = ""
    """The package that would bring a module it could not import, as the guest says; the program may have made it up."""


How: TypeAlias = Literal["added", "changed", "removed"]


class ChangedFile(Struct, frozen=True, kw_only=True):
    """Of the workspace, by a cell."""

    path: str
    """In one line, fit to be read."""
    how: How
    before: bytes | None = None
    """Its content, if it is small and known."""
    after: bytes | None = None


class ChangedFiles(Struct, frozen=True, kw_only=True):
    files: tuple[ChangedFile, ...] = ()
    """The first of them."""
    more: int = 0
    """How many others."""


ReadOnly: TypeAlias = Literal["", "kept", "refused", "impossible"]
"""How a command fared that was to change no file: it did not try; it failed because it could not; it was not run, for
this system cannot hold it to that."""


class CommandOutcome(Struct, frozen=True, kw_only=True):
    """How a program ended that was run beside the cells."""

    status: Literal["ok", "error", "timeout"]
    """`ok`: it exited with 0. `error` also when it could not be started; then `stderr` says why."""
    code: int | None = None
    """Its exit code, or minus the signal that ended it; None if it has none or it is not known."""
    stdout: bytes = b""
    stderr: bytes = b""
    dropped_bytes: int = 0
    """Output beyond `COMMAND_BYTES` a stream, counted and not kept."""
    duration_s: float = 0.0
    rolled_back: bool = False
    """The interpreter died under it; the session is as it was before, files and all, and `stderr` says so."""
    notices: tuple[str, ...] = ()
    """What the sandbox did about it, a line each."""
    read_only: ReadOnly = ""


class Variable(Struct, frozen=True, kw_only=True):
    """One name in the session. Never made by calling the user's own code."""

    name: str
    type: str
    shape: str | None = None
    size: int | None = None
    """In bytes, where that is known without the user's own code."""
    cell: int | None = None
    """The cell that bound the name last, counted from 1 since the interpreter started."""


class Label(Struct, frozen=True, kw_only=True):
    """What became of a variable when its session went on in another process."""

    name: str
    status: Literal["restored", "replayed", "lost"]
    """`replayed`: a cell that does nothing but bind names was run again."""
    reason: str = ""
    """Why it is lost, or what to know of one that is not."""


class Resumed(Struct, frozen=True, kw_only=True):
    cell: int
    """The variables are as after this one, 0 being the start, but for those that are lost."""
    missing: tuple[int, ...] = ()
    """Cells that ran later; what they did to variables is lost."""
    labels: tuple[Label, ...] = ()


OnOutput: TypeAlias = Callable[[Stream, str], None]
"""Called as output arrives, all of it, in order within a stream; must not block."""
OnCall: TypeAlias = Callable[[str, Mapping[str, Json]], Awaitable[Answer]]
"""Answers a call of the tool by this name with these arguments, which come from the program, unchecked.
One call at a time. Cancelled when the cell ends first; what it raises ends the cell and is raised by `run`.
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
        does not count to the limit. Raises SandboxUnavailable only when the sandbox itself
        fails; whatever the program does (exceptions, exit, crash, endless loop) is an Outcome.
        """
        ...

    async def interrupt(self) -> None:
        """Stop the running cell as Ctrl-C would; does nothing when none runs."""

    async def fork(self) -> Session: ...

    async def keep(self, branch: Session) -> None: ...

    async def undo(self, to: int | None = None, what: What = "all") -> tuple[str, ...] | None:
        """To before the last cell, or to the state after cell `to`. What must be said of it, a line each. Raises UndoRefused."""
        ...

    async def redo(self) -> tuple[str, ...] | None:
        """As `undo`, for the last one."""
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
        """Run a program as the cells could, and wait for it. Needs capability `commands`, else raises NotSupported.
        With `read_only`, which needs its capability too, it and all it starts can change no file but in their scratch
        folder, TMPDIR; `CommandOutcome.read_only` tells how that went.
        `env` is all of its environment but TMPDIR, the interpreter's own unless given; `workdir` is relative to the
        workspace. When its time is over, or the awaiting task is cancelled, its whole process group ends; what it leaves
        in the background otherwise runs on, unheard. It is no cell: variables stay, no state is kept after it, and
        files it changes are changed between cells, so that no undo takes that back.
        While `on_call` answers a call, it is the cell's: it runs at once, in the cell's slot, what it changes is undone
        with the cell, and the cell's clock stands still. Should the cell end first, the outcome is an `error` that says so.
        """
        ...

    async def close(self) -> None:
        """End every process of the session. Idempotent."""


@runtime_checkable
class Resumable(Session, Protocol):
    """Where the provider is durable."""

    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
        cell: int | None = None,
    ) -> Outcome:
        """`cell` is the caller's number for it, higher than all before; one more than the last unless given."""
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
        """With `cell`, numbered as for `run`, it is a step as a cell is: on the path, undone and redone, files and all.
        Undoing it also ends what it left running. 0 is the number after the last. Without, nothing is undone of it. While
        a call is answered, `cell` is ignored: what it does is the running cell's.
        """
        ...

    def pause_clock(self) -> AbstractContextManager[None]:
        """Meanwhile the clock of the running cell stands still, because it waits for the host."""
        ...

    @property
    def path(self) -> tuple[int, ...]:
        """The cells whose effects are there, in order: those that were undone are not."""
        ...

    @property
    def changed_files(self) -> ChangedFiles:
        """By the last cell, or the last command that counts as one. Git's own files and bytecode are left out."""
        ...

    @property
    def resumed(self) -> Resumed | None:
        """What came back; None for a session that began here."""
        ...

    async def describe_uncovered(self) -> tuple[str, ...]:
        """What undo will not bring back, a line each; asked before the first cell, it is not said with that."""
        ...


class Provider(Protocol):
    """Where sessions come from. Third parties register what makes one as entry point `pinfold.sandboxes`."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def notice(self) -> str | None:
        """What a user must know before trusting it; front ends show it as is. None when nothing, or not known before `open`."""
        ...

    async def open(self, spec: Spec) -> Session:
        """A session whose interpreter has answered. Raises SandboxUnavailable, and NotSupported for what it cannot give."""
        ...
