"""Ids, provider-independent messages to and from a model, the actions a model proposes, and the verdicts on them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, NewType, TypeAlias, cast

from msgspec import Struct

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
ActionId = NewType("ActionId", str)
BlobId = NewType("BlobId", str)
"""`sha256:` and the hex digest of the content."""

Json: TypeAlias = Any
"""Plain JSON data. The codec checks it; the type checker does not."""


class Arrow(bytes):
    """A table as an Arrow IPC stream. Code that receives it gets a `pyarrow.Table`."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the provider counted them."""

    input_tokens: int = 0
    """All input tokens, including those read from a cache."""
    output_tokens: int = 0
    """All output tokens, including reasoning."""
    cached_tokens: int = 0
    """Input tokens read from the provider's cache."""
    written_tokens: int = 0
    """Input tokens written to the provider's cache, where that is priced separately."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


class Call(Struct, frozen=True, kw_only=True):
    """A tool call as the model wrote it, not yet validated."""

    id: ActionId
    tool: str
    args: Json


class Image(Struct, frozen=True, kw_only=True):
    """A picture for the model; its bytes are in the request's `blobs`."""

    mime: str
    blob: BlobId


FILES_TOLD = "[Files in the current folder:"
"""Begins the file list in a user message; `]` ends it."""


class UserMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    text: str
    images: tuple[Image, ...] = ()


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    text: str
    calls: tuple[Call, ...] = ()
    in_text: bool = False
    """The calls were parsed from the text, which is unchanged."""
    echo: Json = None
    """Provider data to send back with this message, unchanged."""


class ToolMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """The result of the call `id`."""

    id: ActionId
    text: str


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class ToolSchema(Struct, frozen=True, kw_only=True):
    """A tool as described to the model."""

    name: str
    description: str
    parameters: Mapping[str, Json]


class Request(Struct, frozen=True, kw_only=True):
    """One request to a model."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    settings: Mapping[str, Json] = {}
    blobs: Mapping[BlobId, bytes] = {}
    """The pictures of the messages."""


class Thought(Struct, frozen=True):
    """A streamed piece of a model's reasoning."""

    text: str


Finish: TypeAlias = Literal["stop", "length", "filter"]
"""Why a reply ended: it is complete, it hit the token limit, or the provider's filter cut it off."""


class ModelOutput(Struct, frozen=True, kw_only=True):
    """A model's reply without its calls."""

    text: str
    usage: Usage = Usage()
    cost: float | None = None
    """In US dollars; None when the price is not known."""
    request_id: str = ""
    reasoning: str = ""
    finish: Finish = "stop"
    in_text: bool = False
    """The calls were parsed from the text."""
    correction: str = ""
    """Correction to send to the model. A reply with a correction and no calls does not count as an answer."""
    unreadable: bool = False
    """The model tried to make a call that could not be parsed, so the text is not an answer."""
    from_cache: bool = False
    """Taken from the response cache; no model was called."""
    echo: Json = None
    """Provider data to send back with this message."""


class Reply(ModelOutput, frozen=True, kw_only=True):
    """A model's complete reply."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    notices: tuple[str, ...] = ()
    """Notices for the user."""


def new_session_id() -> SessionId:
    return SessionId(f"s_{os.urandom(6).hex()}")


def new_turn_id() -> TurnId:
    return TurnId(f"t_{os.urandom(6).hex()}")


def new_action_id() -> ActionId:
    return ActionId(f"a_{os.urandom(6).hex()}")


Mode: TypeAlias = Literal["read-only", "ask", "auto", "full"]
Effect: TypeAlias = Literal["pure", "keyed", "once"]
"""Whether an action may be retried: freely, under the same key, or never."""
Reach: TypeAlias = Literal["nothing", "files", "workspace", "protected", "packages", "network", "outside", "host"]
"""How far an action reaches: it only computes or asks; reads what the session sees; changes the workspace; changes
protected files; installs packages; reaches another machine; has unknown effects outside the sandbox; is on the host."""
What: TypeAlias = Literal["all", "variables", "files"]
"""What an undo restores; files are those of the workspace."""
Rewindable: TypeAlias = Literal["all", "chat", "files", "variables"]
"""What a rewind restores to the state before a turn; `all` includes the conversation."""
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
    """The action can be allowed once or for this session, but not always."""
    rule: str = ""
    question: bool = False
    """The agent asks the user; the user's words are the answer."""
    options: tuple[str, ...] = ()
    caller: bool = False
    """The client program provides the tool: its words are the result, and no person is asked."""


class Deny(Struct, frozen=True):
    """`reason` is shown to the user and to the model."""

    reason: str
    rule: str = ""


Verdict: TypeAlias = Allow | Ask | Deny
