"""What a sandbox is to the rest of the product. No provider lives here."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from pinfold.events import Json, PinfoldError, Unavailable

Status: TypeAlias = Literal["ok", "error", "interrupted", "timeout", "killed"]
Stream: TypeAlias = Literal["stdout", "stderr"]
What: TypeAlias = Literal["all", "variables", "files"]
OnOutput: TypeAlias = Callable[[Stream, str], None]
"""Called as output arrives, all of it, in order within a stream; must not block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a cell gets for a call of a tool."""

    status: Literal["ok", "refused", "failed"]
    """`refused`: it was not run; the cell gets ToolRefused. `failed`: it was, in vain; the cell gets ToolFailed."""
    value: Json = None
    """The result, or why there is none."""


OnCall: TypeAlias = Callable[[str, Mapping[str, Json]], Awaitable[Answer]]
"""Answers a call of the tool by this name with these arguments, which are the program's and checked by nobody.

One call at a time. Cancelled when the cell ends first; what it raises ends the cell and is raised by `run`.
"""


class SandboxError(PinfoldError):
    """Base. None of these is the program's own failure; that is an Outcome.

    SandboxError
      SandboxUnavailable   ours: it cannot start or it broke; never shown to the model
      NotSupported         this provider lacks the capability; ask `capabilities` first
      FileRefused          a path that leaves the workspace, is missing or is too large
    """


class SandboxUnavailable(SandboxError, Unavailable):
    """Says what failed and what the user can do."""


class NotSupported(SandboxError):
    """The provider does not have this capability."""


class UndoRefused(SandboxError):
    """There is no such state to go to; the text says why. Nothing has changed."""


class FileRefused(SandboxError):
    """`put` or `get` of this path is not possible; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a provider can do. The engine asks, never guesses."""

    isolated: bool
    fork: bool = False
    """Live copies: fork, keep, undo and redo by snapshot."""
    files_view: bool = False
    """A session can have its own view of the workspace files: `Spec.view`."""
    sockets: bool = False
    """Code inside may listen and connect on its own loopback."""
    mounts: bool = False
    """`data` is at /mnt/datasets/NAME; without, it is read at its own path, as is `Spec.mounts` everywhere."""
    site: bool = False
    """What is put into `Spec.site` can be imported inside."""
    calls: bool = False
    """Code inside may call tools, where `run` has somebody to answer: `from _pinfold_guest.calls import call`."""
    remote: bool = False


def default_memory() -> int:
    """The smaller of 4 GiB and half of this machine's memory."""
    try:
        return min(4 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    except (OSError, ValueError):  # a system that does not say
        return 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A path of the host's that a session sees at the same place."""

    path: Path
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What to open."""

    workspace: Path
    writable: bool = True
    """Whether the session may change the workspace."""
    view: Path | None = None
    """A folder of the host's, empty or of an earlier session with this view: what the session changes in the workspace
    goes there, and the workspace stays as it is. Needs `Capabilities.files_view`."""
    data: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Read-only, at /mnt/datasets/NAME where the provider has mounts, else at its own path."""
    site: Path | None = None
    """A folder of the host's, read-only at its own path inside: each folder in it is on the session's import path,
    after everything else, and may appear at any time. Its name goes in as environment variable PINFOLD_SITE."""
    mounts: tuple[Mount, ...] = ()
    """None lies in another, in the workspace, or around it."""
    limits: Limits = field(default_factory=Limits)


def refuse_view(spec: Spec, name: str) -> None:
    """For a provider that has none. Raises NotSupported."""
    if spec.view is not None:
        raise NotSupported(f"{name} gives no session a private view of the workspace; `namespaces` does")


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """Something rich the cell showed: one value, several representations."""

    mime: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
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
    dropped_bytes: int = 0
    """Output beyond `Limits.output_bytes`, counted and not kept."""
    notices: tuple[str, ...] = ()
    """What the sandbox did about the cell, a line each: for the model and the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One name in the session. Never made by calling the user's own code."""

    name: str
    type: str
    shape: str | None = None
    size: int | None = None
    """In bytes, where that is known without the user's own code."""
    cell: int | None = None
    """The cell that bound the name last, counted from 1 since the interpreter started."""


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
        """Run one cell. Cancelling the awaiting task interrupts the cell and keeps the state.

        The time `on_call` takes does not count to the limit. Raises SandboxUnavailable only when the sandbox itself fails; whatever the program does
        (exceptions, exit, crash, endless loop) is an Outcome.
        """
        ...

    async def interrupt(self) -> None:
        """Stop the running cell as Ctrl-C would; does nothing when none runs."""
        ...

    async def fork(self) -> Session: ...

    async def keep(self, branch: Session) -> None: ...

    async def undo(self, to: int | None = None, what: What = "all") -> None: ...

    async def redo(self) -> None: ...

    async def variables(self) -> tuple[Variable, ...]: ...

    async def put(self, path: str, data: bytes) -> None:
        """Write a file of the workspace. Raises FileRefused."""
        ...

    async def get(self, path: str) -> bytes:
        """Read a file of the workspace. Raises FileRefused."""
        ...

    async def close(self) -> None:
        """End every process of the session. Idempotent."""
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
        """A session whose interpreter has answered. Raises SandboxUnavailable, and NotSupported for a view it cannot give."""
        ...
