"""What can happen, as it is written to the log. Plain data: no behaviour, no rendering.

Fields are only ever added, with a default; a rename goes through an upcaster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from msgspec import Struct, field

from pinfold.events.ids import ActionId, BlobId, SessionId, TurnId
from pinfold.events.talk import Call, Finish, Image, Json, Usage

Mode: TypeAlias = Literal["read-only", "ask", "auto", "full"]
Effect: TypeAlias = Literal["pure", "keyed", "once"]
"""Whether an action may be run again: freely, under the same key, or never."""
Reach: TypeAlias = Literal["nothing", "files", "workspace", "protected", "packages", "network", "outside", "host"]
"""How far an action goes: it only computes or asks the user; reads what the session sees; changes the workspace; changes a
file that steers the agent; adds a package; reaches another machine; acts by means we know nothing of; runs on the host."""
What: TypeAlias = Literal["all", "variables", "files"]
"""That an undo takes back; files are those of the workspace."""
Rewindable: TypeAlias = Literal["all", "chat", "files", "variables"]
"""What can go back to before a turn; `all` includes the conversation."""
Scope: TypeAlias = Literal["once", "session", "always"]
"""How long a yes holds: for this action, or for all that its pattern covers, in this session or in any."""
BreakerState: TypeAlias = Literal["closed", "open", "half-open"]
"""Of what may fail: in use, left alone for a while, or tried once more."""
Result: TypeAlias = Literal["ok", "error", "denied", "interrupted", "timeout", "killed", "outcome_unknown", "not_run"]
"""`outcome_unknown`: it was started and nobody saw its end. `not_run`: it was never started."""


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
        """Its arguments by name; none where they make no sense."""
        args = cast("object", self.args)
        return cast("dict[str, Json]", args) if isinstance(args, dict) else {}


Action: TypeAlias = RunCell | CallTool


class DisplayRef(Struct, frozen=True, kw_only=True):
    """Something rich an action showed: its representations by mime type, kept as blobs."""

    mime: Mapping[str, BlobId]


class Sent(Struct, frozen=True, kw_only=True):
    """Bytes that left this machine, and what came back."""

    to: str
    """`host:port`."""
    out: int
    back: int = 0


class FileChange(Struct, frozen=True, kw_only=True):
    """What became of a file of the workspace."""

    path: str
    how: Literal["added", "changed", "removed"]
    before: BlobId | None = None
    """Its content, of small files of text."""
    after: BlobId | None = None


class Changed(Struct, frozen=True, kw_only=True):
    """Names of variables, as far as their own type, shape and size tell."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    shapes: tuple[tuple[str, str], ...] = ()
    """Of the tables and arrays among them, by name: `DataFrame 1000 x 5`. What the model knows of data it has not printed."""


class _Event(Struct, frozen=True, kw_only=True, tag_field="kind", tag=True):
    pass


class SessionOpened(_Event, frozen=True, kw_only=True):
    """An owner took the session. One for each owner; the first event of a log that began here."""

    version: str
    workspace: str
    model: str
    mode: Mode
    sandbox: str
    prompt: str = ""
    """The system prompt in force from here on; the context is a projection of the log alone."""
    data: dict[str, str] = {}
    """Read-only mounts by name."""
    mounts: dict[str, bool] = {}
    """Paths seen at their own place, each with whether it may be changed."""
    restored: tuple[str, ...] = ()
    replayed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    imported: bool = False
    """What comes before was written elsewhere: it is told, but it grants nothing and starts nothing."""
    untrusted: bool = False
    """What it works on holds what somebody else wrote."""


class SessionChanged(_Event, frozen=True, kw_only=True):
    title: str
    checkpoints: bool | None = None
    """Whether git checkpoints are made from here on; None: as before."""
    mode: Mode | None = None
    """What may run unasked from here on; None: as before."""
    revoked: tuple[str, ...] = ()
    """Patterns that were granted to this session and are not any more."""
    model: str = ""
    """Who is asked from here on; empty: as before."""
    prompt: str = ""
    """What it is told first; empty: as before."""


class SessionRewound(_Event, frozen=True, kw_only=True):
    """Undo, or redo where cells came back. What they did stays on record; the cells to come are numbered on."""

    to: int
    """It is now as after this cell, 0 being the start."""
    what: What | Literal["chat"] = "all"
    undone: tuple[int, ...] = ()
    redone: tuple[int, ...] = ()
    effects: tuple[str, ...] = ()
    """What has happened since and cannot be undone."""
    notices: tuple[str, ...] = ()
    forgotten: tuple[TurnId, ...] = ()
    """Turns that the model is not told of any more."""
    recalled: tuple[TurnId, ...] = ()
    """Those it is told of again."""
    again: bool = False
    """It took an undo back."""


class SessionForked(_Event, frozen=True, kw_only=True):
    """All before was copied from another session, which goes its own way."""

    source: SessionId = field(name="from")
    last: int = 0
    """The number of its last event then."""


class ContextCompacted(_Event, frozen=True, kw_only=True):
    """The model is not told of the turns before this any more; they stay on record."""

    summary: str = ""
    """What it is told instead."""


class Noticed(_Event, frozen=True, kw_only=True):
    """Something the user should know that is no action's outcome."""

    text: str


class Checkpointed(_Event, frozen=True, kw_only=True):
    """The workspace's files are in a commit on the session's side ref."""

    number: int
    """Counted from 1 in the session."""
    commit: str
    message: str
    """Its first line."""
    restored: int | None = None
    """The files were brought back to this checkpoint, on the user's own behalf."""


class UserSpoke(_Event, frozen=True, kw_only=True):
    turn: TurnId
    text: str
    images: tuple[Image, ...] = ()
    glance: str = ""
    """What files there were, where the model is told without asking."""
    tools: str = ""
    """What it is told of tools that may be of use, where there are more than it knows."""
    private: bool = False
    """It was told, or has seen, what is the user's own."""


class ModelCalled(_Event, frozen=True, kw_only=True):
    turn: TurnId
    model: str
    attempt: int = 1
    size: int = 0
    """Bytes of the conversation that it is given, pictures included, before they are put into its provider's format."""
    to: str = ""
    """Whom they go to, if they leave this machine: `host:port`, a provider, or the model itself where nobody knows more."""


class ModelReplied(_Event, frozen=True, kw_only=True):
    turn: TurnId
    model: str
    text: str
    actions: tuple[Call, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    request_id: str = ""
    reasoning: str = ""
    finish: Finish = "stop"
    in_text: bool = False
    """The actions were read out of the text."""
    correction: str = ""
    """What the model is told of this reply, which does not count as an answer."""
    unreadable: bool = False
    """A call was clearly meant and could not be understood: the text is no answer."""
    from_cache: bool = False
    echo: Json = None
    """What the provider wants back with this message."""


class ModelFailed(_Event, frozen=True, kw_only=True):
    """One call of a model failed; `retry_in_s` is None when it will not be tried again."""

    turn: TurnId
    model: str
    error: str
    status: int | None = None
    retry_in_s: float | None = None
    request_id: str = ""
    breaker: BreakerState = "closed"
    """Whether the model is called again at all, for now."""
    instead: str = ""
    """Who is asked now, where there is someone else."""


class ActionProposed(_Event, frozen=True, kw_only=True):
    id: ActionId
    action: Action
    by: Literal["model", "user", "cell"] = "model"
    turn: TurnId | None = None
    parent: ActionId | None = None


class ActionAllowed(_Event, frozen=True, kw_only=True):
    id: ActionId
    rule: str = ""
    read_only: bool = False
    """It runs with all files read-only. If it fails for that reason, a question or a second verdict follows its start."""


class ActionDenied(_Event, frozen=True, kw_only=True):
    id: ActionId
    reason: str


class ApprovalRequested(_Event, frozen=True, kw_only=True):
    """The user must decide; `digest` binds the decision to the exact bytes of the action, and to what was shown of it."""

    id: ActionId
    reason: str
    digest: str
    shows: str = ""
    """What it would do, as far as that can be told before: a diff, a parsed command, what would be deleted."""
    pattern: str = ""
    """What a yes for the session or for always covers; empty where there is no such yes."""
    stored: str = ""
    """Where a yes for always is kept; empty where there is no such yes."""
    bundled: bool = False
    """A yes covers all calls of the pattern that the same cell makes."""
    question: bool = False
    """It is the agent's own question: the words of the decision are the answer."""
    options: tuple[str, ...] = ()
    """Answers it would like to choose from."""


class ApprovalDecided(_Event, frozen=True, kw_only=True):
    id: ActionId
    verdict: Literal["allow", "deny"]
    scope: Scope = "once"
    by: str = "user"
    words: str = ""


class ActionStarted(_Event, frozen=True, kw_only=True):
    """For `keyed` and `once` actions this is on disk before the effect begins."""

    id: ActionId
    effect: Effect
    cell: int | None = None
    """Which cell of the session this is, or is a part of, counted from 1: an undo of that cell takes it back."""
    instead_of: int | None = None
    """The cell that was this action's before, and was taken back to be run again."""


class ActionFinished(_Event, frozen=True, kw_only=True):
    id: ActionId
    outcome: Result
    observation: str
    value: str | None = None
    """Of a cell: the text of its last expression."""
    error: str | None = None
    """Of a cell: its traceback, or why it is gone."""
    blobs: tuple[BlobId, ...] = ()
    displays: tuple[DisplayRef, ...] = ()
    variables: Changed | None = None
    """Of a cell: what it did to them, if anything."""
    files: tuple[FileChange, ...] = ()
    """Of the workspace, that it changed; the first of them."""
    more_files: int = 0
    """How many others."""
    rolled_back: bool = False
    """Of a cell: everything is as it was before it."""
    notices: tuple[str, ...] = ()
    """Of a cell: what the sandbox did about it, a line each; the observation says it too."""
    lacked: str = ""
    """What was wanted and could not be had: a tool that is broken, the network."""
    private: bool = False
    """It may have read what is the user's own."""
    untrusted: bool = False
    """It brought in what somebody else wrote."""
    sent: tuple[Sent, ...] = ()
    """What left this machine on its behalf."""
    usage: Usage | None = None
    """Of a model that was asked by it, on behalf of somebody else."""
    cost: float | None = None
    duration_s: float = 0.0


class ApproachChanged(_Event, frozen=True, kw_only=True):
    """The same error came again and again: the model is told how things are, or starts over without its tries."""

    turn: TurnId
    error: str
    """Its last line."""
    times: int
    look: str = ""
    """Files and variables, as they are now."""
    started_over: bool = False
    """The tries are forgotten; where a SessionRewound stands before this, they are undone too."""
    private: bool = False
    """It was told what is the user's own."""


class TurnEnded(_Event, frozen=True, kw_only=True):
    turn: TurnId
    text: str
    usage: Usage = Usage()
    cost: float | None = None
    without: tuple[str, ...] = ()
    """What was wanted and could not be had."""
    printed: bool = False
    """The text is what the last cell printed, word for word, in the form that was asked for: no model said it."""


class TurnInterrupted(_Event, frozen=True, kw_only=True):
    turn: TurnId
    reason: str = "interrupted"
    usage: Usage = Usage()


class TurnFailed(_Event, frozen=True, kw_only=True):
    turn: TurnId
    error: str
    temporary: bool = False
    """The same turn may well succeed later: an overloaded model, a full disk."""
    usage: Usage = Usage()


class TextDelta(_Event, frozen=True, kw_only=True):
    """Broadcast only; the whole comes in ModelReplied."""

    turn: TurnId
    text: str
    reasoning: bool = False


class OutputDelta(_Event, frozen=True, kw_only=True):
    """Broadcast only; the whole comes in ActionFinished."""

    id: ActionId
    stream: Literal["stdout", "stderr"]
    text: str


class Unknown(Struct, frozen=True, kw_only=True):
    """An event of a newer version: kept as it is, passed on, never interpreted."""

    kind: str
    body: Mapping[str, Json]


Event: TypeAlias = (
    SessionOpened
    | SessionChanged
    | SessionRewound
    | SessionForked
    | ContextCompacted
    | Noticed
    | Checkpointed
    | UserSpoke
    | ModelCalled
    | ModelReplied
    | ModelFailed
    | ActionProposed
    | ActionAllowed
    | ActionDenied
    | ApprovalRequested
    | ApprovalDecided
    | ActionStarted
    | ActionFinished
    | ApproachChanged
    | TurnEnded
    | TurnInterrupted
    | TurnFailed
    | Unknown
)
Delta: TypeAlias = TextDelta | OutputDelta
