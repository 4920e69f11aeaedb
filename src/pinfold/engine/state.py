"""The session's state, which `fold.py` builds from the log, and descriptions of its changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pinfold.events import (
    Action,
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalDecided,
    ApprovalRequested,
    Call,
    Changed,
    ContextCompacted,
    Effect,
    Message,
    Mode,
    Plan,
    Result,
    RunCell,
    SessionOpened,
    SessionRewound,
    TurnId,
    Usage,
    plain_json,
)
from pinfold.text import cap_text, join_names, join_numbers, pluralize

End: TypeAlias = Literal["ended", "interrupted", "failed"]
Stage: TypeAlias = Literal["proposed", "asking", "allowed", "denied", "started"]

REPEATS = 3
"""How often an action may have the same result before the model gets a warning."""
TRIES = (REPEATS, REPEATS + 1, REPEATS)
"""How often an error may repeat until the model is shown the state, until it starts over, and until the turn stops."""
_NAMED = 12
"""How many changed variables or files are listed by name."""
_ERROR_LENGTH = 120
_NAME = re.compile(r"\w+")
_CELL = re.compile(r"<cell \d+>")
"""The cell in a traceback; it is masked, so that the same failure in another cell counts as a repetition."""
_RAISED = r"(?m)^[\w.]*(?:Error|Exception|Exit|Interrupt|NotFound)\b.*"
_ADDRESS = r"0x[0-9a-f]+"


class OpenAction(Struct, frozen=True, kw_only=True):
    """An action without an outcome in the log."""

    proposed: ActionProposed
    stage: Stage = "proposed"
    effect: Effect = "once"
    reason: str = ""
    asked: ApprovalRequested | None = None
    decided: ApprovalDecided | None = None
    decided_at: str = ""
    bundle: frozenset[str] = frozenset()
    """For a cell: patterns of calls it may make without asking again."""
    cell: int | None = None
    answer: str | None = None
    """For a cell: the answer its code gave the user."""
    read_only: bool = False
    """The action is allowed as long as it changes no file."""


class ActionRecord(Struct, frozen=True, kw_only=True):
    """A finished action of the model in one line, for a context that leaves its result out."""

    id: ActionId
    cell: int | None
    outcome: Result
    line: str
    error: str = ""
    """The last line of the error, if it failed."""


class Compaction(Struct, frozen=True, kw_only=True):
    """What the context leaves out after a compaction."""

    past: int
    """Number of earlier turns, which the summary replaces."""
    summary: str = ""
    kept: ActionId | None = None
    """The first call that is still shown, in the turn of the compaction."""
    shortened: frozenset[ActionId] = frozenset()
    """Actions whose results are shown in one line."""


class UndoneStep(Struct, frozen=True, kw_only=True):
    """What an undo removed, for a redo."""

    turns: tuple[Turn, ...] = ()
    cells: bool = True
    """True if cells were undone too."""
    compactions: tuple[Compaction, ...] = ()


class Turn(Struct, frozen=True, kw_only=True):
    id: TurnId
    cells_before: int = 0
    """Number of the session's last cell before this turn."""
    said: str = ""
    """The user's message, verbatim."""
    messages: tuple[Message, ...] = ()
    unproposed: tuple[Call, ...] = ()
    """Calls of the last reply that are not proposed yet."""
    steps: int = 0
    """Replies so far."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None if the price of any reply is unknown."""
    answer: str | None = None
    """The answer with which the turn can end: the last reply's text if it proposed nothing, or what its code gave."""
    output: str = ""
    """Observation of the last reply's code, if it succeeded and nothing came after it."""
    notices: tuple[str, ...] = ()
    """Pinfold's own notices within `output`."""
    model: str = ""
    """The model that replied last."""
    corrections: int = 0
    """Replies in a row that were sent back."""
    unusable: str = ""
    """Why the last reply fails the turn: it was withheld, or corrections did not make it usable."""
    acts: Mapping[str, int] = {}
    """How often each action gave the same result, by a hash of both."""
    repeated: int = 0
    """How often the last action gave its result."""
    errors: Mapping[str, int] = {}
    """How often code failed with each error, by its last line."""
    error: str = ""
    """The last error; empty once a cell succeeded."""
    approaches: int = 0
    """How often the approach was changed."""
    without: tuple[str, ...] = ()
    """Tools and models that were unavailable so far."""
    compactions: int = 0
    """Compactions since its last finished action."""
    is_checked: bool = False
    """An answer was checked; the next one is not checked again."""
    end: End | None = None

    @property
    def is_failing(self) -> bool:
        """True once the same error occurred too often."""
        return self.errors.get(self.error, 0) >= TRIES[self.approaches]

    @property
    def is_stuck(self) -> bool:
        """True if the model repeats itself despite the warning."""
        return self.repeated > REPEATS or (self.is_failing and self.approaches == 2)


class State(Struct, frozen=True, kw_only=True):
    opened: SessionOpened | None = None
    title: str = ""
    checkpoints: bool = False
    """Git checkpoints are made."""
    glance: str = ""
    """The file list the model saw last."""
    past: tuple[Turn, ...] = ()
    """Turns that have ended."""
    turn: Turn | None = None
    """The open turn: running, or cut off."""
    open: Mapping[ActionId, OpenAction] = {}
    notes: tuple[str, ...] = ()
    """Notes for the model, sent with the next message."""
    mode: Mode = "auto"
    granted: frozenset[str] = frozenset()
    """Patterns granted to this session."""
    private: bool = False
    """The session may have read private data. An undo resets neither this nor `untrusted`."""
    untrusted: bool = False
    """The session has read outside text."""
    cells: int = 0
    undone: frozenset[int] = frozenset()
    """Cells that are undone or rolled back."""
    taken: tuple[UndoneStep, ...] = ()
    """Undos that a redo can reverse, newest last; cleared by the next message or cell."""
    effects: tuple[tuple[int, str], ...] = ()
    """The latest effects outside the session, which cannot be undone, each with the number of cells before it."""
    executed: tuple[ActionId, ...] = ()
    """Ids of the user's latest own actions: a command that is sent twice must not run twice."""
    records: tuple[ActionRecord, ...] = ()
    """The latest finished actions of the model, in order."""
    compactions: tuple[Compaction, ...] = ()
    plan: Plan = Plan()
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None if the price of any reply is unknown."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, the open one last."""
        return (*self.past, self.turn) if self.turn else self.past

    @property
    def path(self) -> tuple[int, ...]:
        """Numbers of the cells that are not undone."""
        return tuple(cell for cell in range(1, self.cells + 1) if cell not in self.undone)

    def effects_of(self, cells: Collection[int]) -> tuple[str, ...]:
        """Return the effects that undoing these cells does not undo."""
        return tuple(what for cell, what in self.effects if cell in cells)

    @property
    def last(self) -> Turn | None:
        return self.turn or (self.past[-1] if self.past else None)


def changed_in_words(variables: Changed) -> str:
    """Describe changed variables in one line, for the model and the user."""
    shapes = {name: f"{name} ({shape})" for name, shape in variables.shapes}
    changes = {"added": variables.added, "changed": variables.changed, "removed": variables.removed}
    parts = [
        f"{how} {join_names([shapes.get(name, name) for name in names], _NAMED)}"
        for how, names in changes.items()
        if names
    ]
    return f"variables: {'; '.join(parts)}"


def rewound_in_words(event: SessionRewound) -> str:
    """Describe an undo or redo in a sentence without its subject, for the model and the user."""
    turns = event.recalled or event.forgotten
    talk = f"{'brought back' if event.recalled else 'took back'} {pluralize('turn', len(turns))} of the conversation"
    if event.what == "chat":
        return f"{talk}; variables and files stay as they are."
    cells = event.redone or event.undone
    which = join_numbers("cell", cells) if cells else "file changes"
    what = {"all": "variables and workspace files", "variables": "variables", "files": "workspace files"}
    state = f"as after cell {event.to}" if event.to else "as at the start"
    did = f"{'redid' if event.again or event.redone else 'undid'} {which}"
    if turns:
        did = f"{talk} and {did}"
    said = [f"{did}: {what[event.what]} are {state}."]
    if event.effects:
        said.append(f"Not undone, because it cannot be: {'; '.join(event.effects)}.")
    return " ".join((*said, *event.notices))


_MARKS = {"todo": " ", "doing": ">", "done": "x", "dropped": "-"}


def plan_in_words(plan: Plan, notes: int | None = None) -> str:
    """Return the plan and the last `notes` lab notes (None: all), a line for each; empty if there is no plan."""
    lines = [f"[{_MARKS[task.status]}] {number}. {task.text}" for number, task in enumerate(plan.tasks, 1)]
    shown = plan.notes if notes is None else plan.notes[-notes:]
    lines += [f"{note.kind}{f' (cell {note.cell})' if note.cell else ''}: {note.text}" for note in shown]
    if not lines and not plan.goal and not plan.locked:
        return ""
    agreed = "; nothing may be changed until the user agrees to it" if plan.locked else ""
    return "\n".join((f"Plan ({plan.state}{agreed}){f': {plan.goal}' if plan.goal else ''}", *lines))


def compacted_in_words(event: ContextCompacted) -> str:
    """Describe a compaction in one sentence, for the user."""
    sizes = f"from about {event.before:,} to {event.after:,} tokens"
    if event.summary:
        if event.before <= event.after:
            return f"A summary replaces earlier messages; it is no shorter yet (about {event.after:,} tokens in all)."
        return f"Context compacted {sizes}: a summary replaces earlier messages; variables and files stay."
    return f"Context compacted {sizes}: {pluralize('old result', len(event.shortened))} shown in one line."


def unnamed_changes(variables: Changed | None, action: Action) -> Changed | None:
    """Return the changed variables that the code does not name itself; the model knows the others."""
    if variables is None or not isinstance(action, RunCell):
        return variables
    known = frozenset(_NAME.findall(action.code)) - {name for name, _ in variables.shapes}
    rest = {
        how: tuple(name for name in getattr(variables, how) if name not in known)
        for how in ("added", "changed", "removed")
    }
    return replace(variables, **rest) if any(rest.values()) or variables.shapes else None


def record_of(item: OpenAction, event: ActionFinished) -> ActionRecord:
    """Describe a finished action in one line: what it was, its outcome, and what it changed."""
    action = item.proposed.action
    what = f"cell {item.cell}" if item.cell else getattr(action, "tool", "cell")
    if not isinstance(action, RunCell):
        what += f" {cap_text(plain_json(action.args), _ERROR_LENGTH)}"
    parts = [f"{what}: {event.outcome.replace('_', ' ')}"]
    if event.variables:
        parts.append(changed_in_words(event.variables))
    if event.files:
        parts.append(f"files: {join_names([one.path for one in event.files], _NAMED)}")
    parts.append(f"{len(event.observation):,} characters of output")
    error = _last_line(event.error or event.observation) if event.outcome != "ok" else ""
    return ActionRecord(id=event.id, cell=item.cell, outcome=event.outcome, line="; ".join(parts), error=error)


def count_repeats(turn: Turn, action: Action, event: ActionFinished) -> Turn:
    """Count how often the turn did this action with this result, and failed with this error."""
    result = _CELL.sub("<cell>", event.observation)
    act = sha256(plain_json([action, event.outcome, result]).encode()).hexdigest()
    times = turn.acts.get(act, 0) + 1
    turn = replace(turn, acts={**turn.acts, act: times}, repeated=times)
    if not isinstance(action, RunCell):
        return turn
    error = _last_line(event.error) if event.outcome == "error" and event.error else ""
    errors = {**turn.errors, error: turn.errors.get(error, 0) + 1} if error else turn.errors
    return replace(turn, errors=errors, error=error)


def _last_line(error: str) -> str:
    """Return the line of the exception, without memory addresses, which make the same failure look different."""
    raised = re.findall(_RAISED, error) or error.rstrip().splitlines()[-1:]
    return cap_text(re.sub(_ADDRESS, "0x", raised[-1]), _ERROR_LENGTH) if raised else ""
