"""Commands that front ends send to a session. The sender picks the ids, so it recognises its own events."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.events.event_types import Plan
from pinfold.events.messages import ActionId, Image, Mode, Rewindable, Scope, TurnId, What


class _Command(Struct, frozen=True, kw_only=True, tag_field="kind", tag=True): ...


class Say(_Command, frozen=True, kw_only=True):
    """Begin a turn. A repeat with the same id does nothing, or continues that turn if it was cut off."""

    turn: TurnId
    text: str
    images: tuple[Image, ...] = ()
    """Pictures already stored among the session's blobs."""


class Continue(_Command, frozen=True, kw_only=True):
    """Continue the turn that a crash or an interrupt cut off."""


class Execute(_Command, frozen=True, kw_only=True):
    """Run a cell for the user, without a model. A repeat with the same id does nothing."""

    id: ActionId
    code: str
    timeout_s: float | None = None


class Decide(_Command, frozen=True, kw_only=True):
    """Decide an approval request. `digest` must equal that of the request."""

    id: ActionId
    digest: str
    verdict: Literal["allow", "deny"]
    scope: Scope = "once"
    words: str = ""


class Interrupt(_Command, frozen=True, kw_only=True):
    """Stop a turn or a cell, running or still waiting; the state is kept."""

    target: TurnId | ActionId | None = None
    """The id of the turn or cell; None: the one running now."""


class Undo(_Command, frozen=True, kw_only=True):
    """Go back to the state before the last cell, or to the state after cell `to`; 0 is the start."""

    to: int | None = None
    what: What = "all"


class Rewind(_Command, frozen=True, kw_only=True):
    """Go back to the state before a turn; `all` covers the conversation, variables and files."""

    turn: TurnId
    what: Rewindable = "all"


class Redo(_Command, frozen=True, kw_only=True):
    """Reverse the last undo or rewind, if no message or cell came after it."""


class Clear(_Command, frozen=True, kw_only=True):
    """Clear the conversation; variables and files stay."""


class Compact(_Command, frozen=True, kw_only=True):
    """Replace the conversation so far by a summary; variables and files stay."""

    keep: str = ""
    """What the summary must also say."""


class Rename(_Command, frozen=True, kw_only=True):
    title: str


class Configure(_Command, frozen=True, kw_only=True):
    """Change the session's settings. A setting that is None stays unchanged."""

    checkpoints: bool | None = None
    """Whether to make git checkpoints."""
    mode: Mode | None = None
    model: str | None = None
    revoke: tuple[str, ...] = ()
    """Granted patterns to revoke."""
    plan: Plan | None = None
    """The new plan, complete, with the lab notebook."""


Command: TypeAlias = (
    Say | Continue | Execute | Decide | Interrupt | Undo | Rewind | Redo | Clear | Compact | Rename | Configure
)
