"""What some sessions can do besides the contract; ask with `isinstance`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from pinfold.sandbox.contract import Session


@runtime_checkable
class GuardedSession(Protocol):
    """A session that looks after the files of its workspace until everything in it has ended."""

    def allow_edit(self, path: str) -> None:
        """The host is about to change this protected file, named relative to the workspace, as the user agreed."""

    @property
    def parting(self) -> tuple[str, ...]:
        """Once it is closed: what the user must know of the workspace, a line each."""
        ...

    @property
    def lost_files(self) -> tuple[str, ...]:
        """Once it is closed: guarded files that could not be put back, a line each."""
        ...


@runtime_checkable
class Savable(Protocol):
    """A session that saves its variables beside the cells, and can be asked not to be late."""

    async def save(self) -> None:
        """As they are after the last cell that has ended, before this returns."""


@runtime_checkable
class Forkable(Session, Protocol):
    """A session of which forks may have files of their own."""

    async def fork(self, view: Path | None = None) -> Session:
        """As `fork`; with `view`, an empty folder of the host's, the fork has files of its own, which `merge_view` takes from there."""
        ...

    @property
    def workspace(self) -> str:
        """Of such a fork: where its code finds them; else empty."""
        ...

    def release_view(self) -> None:
        """Of such a fork: what it changed is not needed any more."""


@runtime_checkable
class Freezable(Protocol):
    def freeze(self) -> AbstractAsyncContextManager[None]:
        """Meanwhile no process of the session runs, nor does any cell, command or save begin.
        Raises NotSupported where the sandbox has no such power, SandboxUnavailable where the processes do not stop.
        """
        ...
