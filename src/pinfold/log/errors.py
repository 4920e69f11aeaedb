"""Errors of a log, and the damage that a read found."""

from __future__ import annotations

from msgspec import Struct, field

from pinfold.events import PinfoldError


class LogError(PinfoldError):
    """Base. The message is one line for the user.

    LogError
      LogUnreadable   the store cannot be opened: not a Pinfold log, or its header is corrupt
        LogTooNew     a newer Pinfold wrote it
      LogUnwritable   the disk failed: nothing was recorded; earlier events are safe
      BadBundle       a file to import is invalid
      BlobMissing     a blob is missing, or its content does not match its name
    """


class LogUnreadable(LogError):
    pass


class LogTooNew(LogUnreadable):
    pass


class LogUnwritable(LogError):
    exit_code = 75


class BadBundle(LogError):
    exit_code = 2


class BlobMissing(LogError):
    pass


class Damage(Struct):
    """What a read could not restore."""

    unreadable: list[int] = field(default_factory=list[int])
    """Numbers of events whose checksum does not hold."""
    lost_after: int | None = None
    """Acknowledged events after this number are gone."""
    acknowledged: int = 0
    blobs: list[str] = field(default_factory=list[str])
    """Blobs that are missing or do not match their name."""
    first_page: bool = False
    """The store's header was damaged; the events were read anyway."""
    tree: bool = False
    """The B-tree is broken: a scan does not give every row in order."""

    def __bool__(self) -> bool:
        return bool(str(self))

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.unreadable[:5])) + ", ..." * (len(self.unreadable) > 5)
        missing = self.acknowledged - (self.lost_after or 0)
        parts = (
            (self.unreadable, f"{len(self.unreadable)} events damaged and unreadable (number {numbers})"),
            (self.lost_after is not None, f"{missing} events missing after number {self.lost_after}"),
            (self.blobs, f"{len(self.blobs)} blobs damaged or missing"),
            (self.first_page, "the header of the store damaged"),
            (self.tree, "the tree of the store damaged"),
        )
        return "; ".join(words for is_hit, words in parts if is_hit)
