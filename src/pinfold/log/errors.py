"""What can go wrong with a log, by whose move is next."""

from __future__ import annotations

from pinfold.events import PinfoldError


class LogError(PinfoldError):
    """Base. The message is one line for the user.

    LogError
      LogUnreadable   the store cannot be opened at all, or is no store of ours
        LogTooNew     a newer Pinfold wrote it
      LogUnwritable   the disk refused: nothing was recorded; what was recorded before is safe
      BadBundle       a file to import that is not what it should be
      BlobMissing     a blob that is named but not there, or not what its name says
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
