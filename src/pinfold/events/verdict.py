"""What policy, or a hook, says of an action."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class Allow(Struct, frozen=True, kw_only=True):
    rule: str
    read_only: bool = False
    """Only as long as it changes no file: the sandbox sees to that."""


FLOW = "flow: "
"""How the pattern of a flow begins: a destination that what leaves may go to."""


class Ask(Struct, frozen=True, kw_only=True):
    """The user must decide; `reason` is shown to them as it is."""

    reason: str
    pattern: str = ""
    """What a yes for longer than this once would allow; empty where there is no such yes."""
    is_flow: bool = False
    """A yes for longer holds for this session only, and a yes for this once for this call only."""
    rule: str = ""
    question: bool = False
    """It is the agent's own question, and the user's words are what it wants."""
    options: tuple[str, ...] = ()


class Deny(Struct, frozen=True):
    """`reason` is shown to the user and to the model."""

    reason: str
    rule: str = ""


Verdict: TypeAlias = Allow | Ask | Deny
