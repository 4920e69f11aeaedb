"""The events of the log, and the deltas, which are not stored. Plain data: no behaviour, no rendering.

Fields are only ever added, with a default; a rename goes through an upcaster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from pinfold.events.messages import (
    Action,
    ActionId,
    BlobId,
    BreakerState,
    Call,
    Effect,
    Image,
    Json,
    Mode,
    ModelOutput,
    Result,
    Scope,
    SessionId,
    TurnId,
    Usage,
    What,
)


class DisplayRef(Struct, frozen=True, kw_only=True):
    """A rich display that an action produced: its representations by mime type, stored as blobs."""

    mime: Mapping[str, BlobId]


class Sent(Struct, frozen=True, kw_only=True):
    """Bytes that left this machine, and bytes that came back."""

    to: str
    """`host:port`."""
    out: int
    back: int = 0


class FileChange(Struct, frozen=True, kw_only=True):
    """How a workspace file changed."""

    path: str
    how: Literal["added", "changed", "removed"]
    before: BlobId | None = None
    """The content, for small text files."""
    after: BlobId | None = None


class Changed(Struct, frozen=True, kw_only=True):
    """Names of changed variables, judged by type, shape and size."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    shapes: tuple[tuple[str, str], ...] = ()
    """Name and shape of tables and arrays: `DataFrame 1000 x 5`. The model knows no more of data it has not printed."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of an action."""

    outcome: Result
    observation: str
    value: str | None = None
    """For a cell: the value of its last expression, as text."""
    error: str | None = None
    """For a cell: its traceback, or why it ended without one."""
    blobs: tuple[BlobId, ...] = ()
    displays: tuple[DisplayRef, ...] = ()
    variables: Changed | None = None
    """For a cell: the variables it changed, if any."""
    files: tuple[FileChange, ...] = ()
    """The first of the workspace files that it changed."""
    more_files: int = 0
    """The number of further files that it changed."""
    rolled_back: bool = False
    """For a cell: its changes were rolled back."""
    notices: tuple[str, ...] = ()
    """For a cell: notices of the sandbox, one line each; also part of the observation."""
    lacked: str = ""
    """What was unavailable: a broken tool, the network."""
    private: bool = False
    """The action may have read private data."""
    untrusted: bool = False
    """The action brought outside text into the session."""
    sent: tuple[Sent, ...] = ()
    """Data that the action sent out of this machine."""
    usage: Usage | None = None
    """Tokens of a model that the action itself called."""
    cost: float | None = None


Checked: TypeAlias = Literal["", "accepted", "refused"]
TaskStatus: TypeAlias = Literal["todo", "doing", "done", "dropped"]
PlanState: TypeAlias = Literal["planning", "executing", "reviewing", "complete"]
NoteKind: TypeAlias = Literal["hypothesis", "result", "decision"]


class PlanTask(Struct, frozen=True, kw_only=True):
    text: str
    status: TaskStatus = "todo"


class LabNote(Struct, frozen=True, kw_only=True):
    """An entry of the lab notebook."""

    kind: NoteKind
    text: str
    cell: int | None = None
    """Number of the session's last cell when the entry was written."""


class Plan(Struct, frozen=True, kw_only=True):
    """What the session is to achieve, the tasks on the way, and the lab notebook."""

    state: PlanState = "planning"
    goal: str = ""
    tasks: tuple[PlanTask, ...] = ()
    notes: tuple[LabNote, ...] = ()
    locked: bool = False
    """Nothing may be changed until the user agrees to the plan."""


class _Event(Struct, frozen=True, kw_only=True, tag_field="kind", tag=True): ...


class SessionOpened(_Event, frozen=True, kw_only=True):
    """A process became the session's owner. Each owner records one; a log that is not a copy begins with one."""

    version: str
    workspace: str
    model: str
    mode: Mode
    sandbox: str
    prompt: str = ""
    """The system prompt from here on; recorded because the context is built from the log alone."""
    data: dict[str, str] = {}
    """Read-only mounts by name."""
    mounts: dict[str, bool] = {}
    """Mounts at their own path; True if writable."""
    restored: tuple[str, ...] = ()
    replayed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    imported: bool = False
    """The events before this were written elsewhere: they are shown, but grant nothing and start nothing."""
    untrusted: bool = False
    """The workspace holds outside text."""


class SessionChanged(_Event, frozen=True, kw_only=True):
    title: str
    checkpoints: bool | None = None
    """Whether git checkpoints are made from here on; None: as before."""
    mode: Mode | None = None
    """What the agent may do without asking, from here on; None: as before."""
    revoked: tuple[str, ...] = ()
    """Patterns whose grant to this session was revoked."""
    model: str = ""
    """The model in use from here on; empty: as before."""
    prompt: str = ""
    """The system prompt for that model; empty: as before."""
    plan: Plan | None = None
    """The whole plan from here on; None: as before."""


class SessionRewound(_Event, frozen=True, kw_only=True):
    """Cells or turns were undone, or redone. They stay in the log, and later cells continue the numbering."""

    to: int
    """The state is now that after this cell; 0 is the start."""
    what: What | Literal["chat"] = "all"
    undone: tuple[int, ...] = ()
    redone: tuple[int, ...] = ()
    effects: tuple[str, ...] = ()
    """Effects of the undone cells that cannot be reversed."""
    notices: tuple[str, ...] = ()
    forgotten: tuple[TurnId, ...] = ()
    """Turns that the model no longer sees."""
    recalled: tuple[TurnId, ...] = ()
    """Turns that the model sees again."""
    again: bool = False
    """True for a redo: it reversed an earlier undo."""


class SessionForked(_Event, frozen=True, kw_only=True):
    """The events before this were copied from another session."""

    source: SessionId = field(name="from")
    last: int = 0
    """Number of the last event copied."""


class ContextCompacted(_Event, frozen=True, kw_only=True):
    """The model no longer sees everything before this event. The log keeps it."""

    summary: str = ""
    """What the model sees instead of earlier messages; empty if none are left out."""
    cause: Literal["clear", "window", "asked"] = "clear"
    """The user cleared the conversation, the model's window was nearly full, or the user asked for a compaction."""
    kept: ActionId | None = None
    """The first call of the open turn that the model still sees."""
    shortened: tuple[ActionId, ...] = ()
    """Actions whose results the model sees as one line."""
    before: int = 0
    """Estimated tokens of the next request without this compaction."""
    after: int = 0


class Noticed(_Event, frozen=True, kw_only=True):
    """A notice to the user that is not the outcome of an action."""

    text: str


class Checkpointed(_Event, frozen=True, kw_only=True):
    """The workspace files were committed to the session's side ref."""

    number: int
    """Counted from 1 in the session."""
    commit: str
    message: str
    """The first line of the commit message."""
    restored: int | None = None
    """Number of the checkpoint to which the user restored the files; None: nothing was restored."""


class UserSpoke(_Event, frozen=True, kw_only=True):
    turn: TurnId
    text: str
    images: tuple[Image, ...] = ()
    glance: str = ""
    """The file list that the model gets with the message, if any."""
    tools: str = ""
    """Hints on useful tools that the model may not know."""
    private: bool = False
    """The model was given private data."""


class ModelCalled(_Event, frozen=True, kw_only=True):
    turn: TurnId
    model: str
    attempt: int = 1
    size: int = 0
    """Bytes of the request with its pictures, before conversion to the provider's format."""
    to: str = ""
    """Where the bytes go if they leave this machine: `host:port`, a provider, or at least the model's name."""


class ModelReplied(ModelOutput, frozen=True, kw_only=True, tag_field="kind", tag=True):
    turn: TurnId
    model: str
    actions: tuple[Call, ...] = ()


class ModelFailed(_Event, frozen=True, kw_only=True):
    """One call of a model failed; `retry_in_s` is None when it will not be tried again."""

    turn: TurnId
    model: str
    error: str
    status: int | None = None
    retry_in_s: float | None = None
    request_id: str = ""
    breaker: BreakerState = "closed"
    """The circuit breaker of this model after the failure."""
    instead: str = ""
    """The fallback model asked next, if any."""


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
    """The action runs with all files read-only. If that makes it fail, a question or a second verdict follows."""


class ActionDenied(_Event, frozen=True, kw_only=True):
    id: ActionId
    reason: str


class ApprovalRequested(_Event, frozen=True, kw_only=True):
    """The user must decide; `digest` binds the decision to the exact bytes of the action and its preview."""

    id: ActionId
    reason: str
    digest: str
    shows: str = ""
    """A preview: a diff, a parsed command, what would be deleted."""
    pattern: str = ""
    """What "session" and "always" would allow; empty if only "once" is offered."""
    stored: str = ""
    """Where "always" is stored; empty if it is not offered."""
    bundled: bool = False
    """Allowing once covers all calls of this pattern by the same cell."""
    question: bool = False
    """The agent asks the user; the words of the decision are the answer."""
    options: tuple[str, ...] = ()
    """Suggested answers."""
    caller: bool = False
    """The client provides the tool: the words of the decision are its result. It waits even if unattended."""


class ApprovalDecided(_Event, frozen=True, kw_only=True):
    id: ActionId
    verdict: Literal["allow", "deny"]
    scope: Scope = "once"
    by: str = "user"
    words: str = ""


class ActionStarted(_Event, frozen=True, kw_only=True):
    """An action starts. For `keyed` and `once` actions this event is on disk before the effect begins."""

    id: ActionId
    effect: Effect
    cell: int | None = None
    """Number, from 1, of the cell that the action is or belongs to; undoing that cell undoes the action."""
    instead_of: int | None = None
    """Number of the action's earlier cell, which was undone in order to run it again."""


class ActionFinished(Outcome, frozen=True, kw_only=True, tag_field="kind", tag=True):
    id: ActionId
    duration_s: float = 0.0


class ApproachChanged(_Event, frozen=True, kw_only=True):
    """An error kept recurring, so the model is shown the state or starts the turn over; or an answer was checked."""

    turn: TurnId
    error: str
    """The last line of the error."""
    times: int
    look: str = ""
    """Current files and variables."""
    started_over: bool = False
    """The attempts were removed from the conversation; a SessionRewound before this means they were undone too."""
    private: bool = False
    """The model was given private data."""
    verdict: Checked = ""
    """The verdict on a checked answer. If it was refused, `error` holds the reasons, which the model sees once."""
    usage: Usage | None = None
    """Tokens that the check used."""
    cost: float | None = None


class TurnEnded(_Event, frozen=True, kw_only=True):
    turn: TurnId
    text: str
    usage: Usage = Usage()
    cost: float | None = None
    without: tuple[str, ...] = ()
    """Tools or models that were unavailable during the turn."""
    printed: bool = False
    """The text is the verbatim output of the last cell, in the form the prompt asked for, not a reply of the model."""


class TurnInterrupted(_Event, frozen=True, kw_only=True):
    turn: TurnId
    reason: str = "interrupted"
    usage: Usage = Usage()


class TurnFailed(_Event, frozen=True, kw_only=True):
    turn: TurnId
    error: str
    temporary: bool = False
    """The turn may succeed later: an overloaded model, a full disk."""
    at_limit: bool = False
    """The turn reached a limit of steps, tokens, cost or time; another turn can continue from there."""
    usage: Usage = Usage()


class TextDelta(_Event, frozen=True, kw_only=True):
    """Broadcast only; ModelReplied has the whole text."""

    turn: TurnId
    text: str
    reasoning: bool = False


class OutputDelta(_Event, frozen=True, kw_only=True):
    """Broadcast only; ActionFinished has the whole output."""

    id: ActionId
    stream: Literal["stdout", "stderr"]
    text: str


class Unknown(Struct, frozen=True, kw_only=True):
    """An event of a newer version: kept and passed on unchanged, never interpreted."""

    kind: str
    body: Mapping[str, Json]


ActionEvent: TypeAlias = ActionProposed | ActionAllowed | ActionDenied | ActionStarted | ActionFinished
SessionChange: TypeAlias = SessionChanged | SessionRewound | Checkpointed | ContextCompacted | ApproachChanged
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
