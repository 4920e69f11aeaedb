"""Errors of configuration, sessions and turns."""

from __future__ import annotations

from pinfold.events import PinfoldError


class ConfigError(PinfoldError):
    """A mistake of the user's, in the file, flag or folder that the message names."""

    exit_code = 2


class NoSuchSession(PinfoldError):
    exit_code = 2

    def __init__(self, message: str, *, several: bool = False) -> None:
        super().__init__(message)
        self.several = several
        """True if the name fits more than one session, False if it fits none."""


class SessionBusy(PinfoldError):
    """Another process holds the session and does not answer."""

    exit_code = 75


class OwnerGone(PinfoldError):
    """The process that owned the session ended while we were connected."""

    exit_code = 75


class TurnError(PinfoldError):
    """A turn of `Agent` that did not end with an answer."""


class CheckpointError(PinfoldError):
    """A checkpoint cannot be made or restored; the message says why."""
