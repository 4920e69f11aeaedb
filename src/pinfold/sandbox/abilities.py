"""Protocols beyond the contract that only some sessions implement; test with `isinstance`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from pinfold.sandbox.contract import SandboxError, Session

MOST_ROWS = 500
"""Most rows of one page."""


@runtime_checkable
class GuardedSession(Protocol):
    """A session that guards the files of its workspace until all its processes have ended."""

    def allow_edit(self, path: str) -> None:
        """Let the host change this protected file, named relative to the workspace, after the user's approval."""

    @property
    def parting(self) -> tuple[str, ...]:
        """Notices about the workspace for the user, one line each; complete once the session is closed."""
        ...

    @property
    def lost_files(self) -> tuple[str, ...]:
        """Guarded files that could not be put back, one line each; complete once the session is closed."""
        ...


@runtime_checkable
class Savable(Protocol):
    """A session that saves its variables in the background, and on request."""

    async def save(self) -> None:
        """Save the variables as they are after the last finished cell, before this returns."""


@runtime_checkable
class Forkable(Session, Protocol):
    """A session whose forks can have files of their own."""

    async def fork(self, view: Path | None = None) -> Session:
        """Fork the session. With `view`, an empty host folder, the fork has its own files, for `merge_view`."""
        ...

    @property
    def workspace(self) -> str:
        """Where a fork with its own files sees them; empty for other sessions."""
        ...

    def release_view(self) -> None:
        """Drop what a fork with its own files has changed."""


@runtime_checkable
class Freezable(Protocol):
    def freeze(self) -> AbstractAsyncContextManager[None]:
        """Stop all processes of the session for the duration; no cell, command or save begins meanwhile.
        Raises NotSupported if the sandbox cannot do that, SandboxUnavailable if the processes do not stop.
        """
        ...


class PageRefused(SandboxError):
    """The variable or column does not exist or cannot be shown; the text says which."""


class PageQuery(Struct, frozen=True, kw_only=True):
    """The rows of a variable to show."""

    offset: int = 0
    limit: int = 50
    """At most `MOST_ROWS`."""
    sort: str | None = None
    """The column to sort by. Missing values come last; the sort is stable."""
    descending: bool = False
    filter: str = ""
    """Keep only rows that contain this text in a column, ignoring case."""
    column: str | None = None
    """The only column that `filter` searches; None for all."""


PageCell: TypeAlias = bool | int | float | str | None
"""Dates are ISO text; infinity and integers beyond 2**53 are text too; text is cut at 500 characters."""


class ColumnSummary(Struct, frozen=True, kw_only=True):
    name: str
    type: str
    missing: int
    distinct: int
    least: PageCell = None
    greatest: PageCell = None
    histogram: tuple[int, ...] | None = None
    """Numbers and dates: 20 counts from least to greatest. Other types with at most 20 distinct values: the count of
    each. Else None."""
    top: tuple[PageCell, ...] = ()
    """The values counted in `histogram`, if they are not numbers or dates."""
    sampled: bool = False
    """True if the table is large: `distinct`, `histogram` and, for text, `least` and `greatest` then come from evenly
    spaced rows."""


class VariablePage(Struct, frozen=True, kw_only=True):
    """Some rows of a variable. Reading them never calls the user's code."""

    name: str
    type: str
    columns: tuple[ColumnSummary, ...]
    """The first 100 columns."""
    rows: tuple[tuple[PageCell, ...], ...]
    total: int
    matching: int
    """The number of rows that match the filter."""
    offset: int
    more_columns: int = 0
    """The number of columns not shown."""


@runtime_checkable
class Paged(Protocol):
    """A session that shows its tables page by page. Pages are computed inside the sandbox."""

    async def variable_page(self, name: str, query: PageQuery) -> VariablePage:
        """Return a page, after the running cell has ended. Changes nothing. Raises PageRefused, SandboxUnavailable."""
        ...
