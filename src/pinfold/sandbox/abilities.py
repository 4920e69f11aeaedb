"""What some sessions can do besides the contract; ask with `isinstance`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from pinfold.sandbox.contract import SandboxError, Session

MOST_ROWS = 500
"""Of one page."""


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


class PageRefused(SandboxError):
    """There is no such variable or column, or it cannot be shown; the text says which."""


class PageQuery(Struct, frozen=True, kw_only=True):
    """Which rows of a variable are wanted."""

    offset: int = 0
    limit: int = 50
    """At most `MOST_ROWS`."""
    sort: str | None = None
    """A column. Missing values come last; rows that are equal stay in order."""
    descending: bool = False
    filter: str = ""
    """Only rows with this text in one of the columns, in any case."""
    column: str | None = None
    """The only column in which `filter` is looked for."""


PageCell: TypeAlias = bool | int | float | str | None
"""Dates are ISO text; infinity and whole numbers beyond 2**53 are text too; text is cut at 500 characters."""


class ColumnSummary(Struct, frozen=True, kw_only=True):
    name: str
    type: str
    missing: int
    distinct: int
    least: PageCell = None
    greatest: PageCell = None
    histogram: tuple[int, ...] | None = None
    """Of numbers and dates, 20 counts from the least to the greatest; of at most 20 different values, theirs; else None."""
    top: tuple[PageCell, ...] = ()
    """The values that the counts are of, where they are not numbers or dates."""
    sampled: bool = False
    """The table is large: `distinct` and `histogram`, and of text also `least` and `greatest`, are those of rows evenly spaced."""


class VariablePage(Struct, frozen=True, kw_only=True):
    """Some rows of a variable. Never made by calling the user's own code."""

    name: str
    type: str
    columns: tuple[ColumnSummary, ...]
    """The first 100."""
    rows: tuple[tuple[PageCell, ...], ...]
    total: int
    matching: int
    """Rows that the filter lets through."""
    offset: int
    more_columns: int = 0
    """Columns that are not shown."""


@runtime_checkable
class Paged(Protocol):
    """A session that shows its tables page by page, computed inside."""

    async def variable_page(self, name: str, query: PageQuery) -> VariablePage:
        """After the cell that runs, if one does. It is no cell, and changes nothing. Raises PageRefused, SandboxUnavailable."""
        ...
