"""What the judge must know of an action besides the action itself. The app finds it out, except for shell commands."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pinfold.events import Effect, Reach
from pinfold.policy.shell import Script, read_script


class Facts(Struct, frozen=True, kw_only=True):
    effect: Effect = "once"
    reach: Reach = "outside"
    target: str = ""
    """What it reaches, where that matters: a path (several on lines of their own), `host:port`, a package."""
    listed: bool = False
    """The target is a host on the user's allow-list."""
    handed: bool = False
    """The user passed the tool to this session directly."""
    leaves: bool = False
    """It can send data of the session's choosing out of this machine."""
    may_leave: bool = False
    """The user allowed that destination for this run on the command line."""


class Taint(Struct, frozen=True, kw_only=True):
    """What a session has read so far; an undo does not reset it."""

    private: bool = False
    untrusted: bool = False

    @property
    def is_full(self) -> bool:
        """Both: outside text may be trying to send out private data."""
        return self.private and self.untrusted


def shell_facts(command: str, *, where: Literal["sandbox", "host"] = "sandbox") -> tuple[Facts, Script]:
    script = read_script(command)
    if where == "host":
        return Facts(effect="once", reach="host"), script
    if script.reads_only:
        return Facts(effect="pure", reach="files"), script
    # Nothing is known of text that was not parsed, not even that it stays in the workspace.
    return Facts(effect="once", reach="outside" if script.dangerous or script.unread else "workspace"), script
