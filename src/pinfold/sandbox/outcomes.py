"""What a session answers: outcomes of cells and commands, variables, changed files. Part of `contract.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from pinfold.events import Json

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
    """Output beyond `Limits.stream_bytes`, counted and not kept."""
    notices: tuple[str, ...] = ()
    """What the sandbox did about the cell, a line each: for the model and the user."""
    missing: str = ""
    """The package that would bring a module it could not import, as the guest says; the program may have made it up."""


class ChangedFile(Struct, frozen=True, kw_only=True):
    """Of the workspace, by a cell."""

    path: str
    """In one line, fit to be read."""
    how: Literal["added", "changed", "removed"]
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
