"""What the judge must know of an action besides its own words. The app finds it out."""

from __future__ import annotations

from msgspec import Struct

from pinfold.events import Effect, Reach


class Facts(Struct, frozen=True, kw_only=True):
    effect: Effect = "once"
    reach: Reach = "outside"
    target: str = ""
    """What it reaches, where that matters: a path (several in lines of their own), `host:port`, a package."""
    listed: bool = False
    """The target is on a list of the user's own: a host."""
    handed: bool = False
    """The user has handed the tool to this session in person."""
    leaves: bool = False
    """Bytes of the session's choosing leave this machine."""
    may_leave: bool = False
    """The user has typed for this run that they may go there."""


class Taint(Struct, frozen=True, kw_only=True):
    """What a session has read so far; it never rewinds."""

    private: bool = False
    untrusted: bool = False

    @property
    def is_full(self) -> bool:
        """Both: what leaves now may be private, and may be what somebody else wants to leave."""
        return self.private and self.untrusted
