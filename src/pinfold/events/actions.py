"""Actions, how they are classified, and the verdicts of policy and hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from pinfold.events.messages import Json

Mode: TypeAlias = Literal["read-only", "ask", "auto", "full"]
Effect: TypeAlias = Literal["pure", "keyed", "once"]
"""Whether an action may be retried: freely, under the same key, or never."""
Reach: TypeAlias = Literal["nothing", "files", "workspace", "protected", "packages", "network", "outside", "host"]
"""How far an action reaches: only computes or asks the user; reads what the session sees; changes the workspace; changes a
protected file; installs a package; reaches another machine; has unknown effects outside the sandbox; runs on the host."""
What: TypeAlias = Literal["all", "variables", "files"]
"""What an undo restores; files are those of the workspace."""
Rewindable: TypeAlias = Literal["all", "chat", "files", "variables"]
"""What can go back to before a turn; `all` includes the conversation."""
Scope: TypeAlias = Literal["once", "session", "always"]
"""How long an approval holds: for this action, or for everything its pattern covers, in this session or always."""
BreakerState: TypeAlias = Literal["closed", "open", "half-open"]
"""A circuit breaker: calls pass, calls are refused for a while, or one trial call may pass."""
Result: TypeAlias = Literal["ok", "error", "denied", "interrupted", "timeout", "killed", "outcome_unknown", "not_run"]
"""`outcome_unknown`: it was started and its end was not seen. `not_run`: it was never started."""


class RunCell(Struct, frozen=True, kw_only=True, tag_field="type", tag="cell"):
    """Run Python in the session's interpreter."""

    code: str
    timeout_s: float | None = None


class CallTool(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool"):
    """Call any other tool by name."""

    tool: str
    args: Json

    @property
    def given(self) -> Mapping[str, Json]:
        """Its arguments by name; empty if they are not an object."""
        args = cast("object", self.args)
        return cast("dict[str, Json]", args) if isinstance(args, dict) else {}


Action: TypeAlias = RunCell | CallTool


class Allow(Struct, frozen=True, kw_only=True):
    rule: str
    read_only: bool = False
    """Allowed as long as it changes no file; the sandbox enforces that."""


FLOW = "flow: "
"""Prefix of a flow's pattern: a destination that data may be sent to."""


class Ask(Struct, frozen=True, kw_only=True):
    """The user must decide; `reason` is shown to them verbatim."""

    reason: str
    pattern: str = ""
    """What "session" and "always" would allow; empty if only "once" is offered."""
    is_flow: bool = False
    """It can be allowed for this session or for this call, not for always."""
    rule: str = ""
    question: bool = False
    """The agent asks the user; the user's words are the answer."""
    options: tuple[str, ...] = ()
    caller: bool = False
    """The program that works with the session offers the tool; its words are the result, and no person is asked."""


class Deny(Struct, frozen=True):
    """`reason` is shown to the user and to the model."""

    reason: str
    rule: str = ""


Verdict: TypeAlias = Allow | Ask | Deny
