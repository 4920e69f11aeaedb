"""Errors of putting things together."""

from __future__ import annotations

from pinfold.events import PinfoldError


class ConfigError(PinfoldError):
    """Yours: fix the file, the flag or the folder that the message names."""

    exit_code = 2


class NoSuchSession(PinfoldError):
    exit_code = 2

    def __init__(self, message: str, *, several: bool = False) -> None:
        super().__init__(message)
        self.several = several
        """The name fits more than one, rather than none."""


class SessionBusy(PinfoldError):
    """Another process holds the session and does not answer."""

    exit_code = 75


class OwnerGone(PinfoldError):
    """The process that held the session ended while we listened."""

    exit_code = 75


class TurnError(PinfoldError):
    """A turn of `Agent` that did not end with an answer."""


class CheckpointError(PinfoldError):
    """A checkpoint that cannot be made, or gone back to; says why."""
