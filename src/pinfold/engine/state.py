"""The session's state, as its log makes it: what there is, not how it came (`folding.py`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.events import (
    ActionId,
    ActionProposed,
    ApprovalDecided,
    ApprovalRequested,
    Call,
    Effect,
    Message,
    Mode,
    SessionOpened,
    TurnId,
    Usage,
)

End: TypeAlias = Literal["ended", "interrupted", "failed"]
Stage: TypeAlias = Literal["proposed", "asking", "allowed", "denied", "started"]

REPEATS = 3
"""How often an action may have the same result before the model is told."""
TRIES = (REPEATS, REPEATS + 1, REPEATS)
"""How often an error may come before a fresh look, then before starting over, then before the end."""


class OpenAction(Struct, frozen=True, kw_only=True):
    """An action whose end is not in the log yet."""

    proposed: ActionProposed
    stage: Stage = "proposed"
    effect: Effect = "once"
    digest: str = ""
    reason: str = ""
    asked: ApprovalRequested | None = None
    decided: ApprovalDecided | None = None
    decided_at: str = ""
    bundle: frozenset[str] = frozenset()
    """Of a cell: patterns whose calls it may make without being asked again."""
    cell: int | None = None
    answer: str | None = None
    """Of a cell: what its code has told the user."""
    read_only: bool = False
    """It was allowed as long as it changes no file."""


class Taken(Struct, frozen=True, kw_only=True):
    """What an undo took back, for a redo."""

    turns: tuple[Turn, ...] = ()
    """Of the conversation."""
    cells: bool = True
    """And what cells did."""


class Turn(Struct, frozen=True, kw_only=True):
    id: TurnId
    cells: int = 0
    """How many there were before it."""
    said: str = ""
    """By the user, as it was."""
    messages: tuple[Message, ...] = ()
    unproposed: tuple[Call, ...] = ()
    """Calls of the last reply that no ActionProposed stands for yet."""
    steps: int = 0
    """Replies so far."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None once any reply had no known price."""
    answer: str | None = None
    """The last reply's text if it proposed nothing, or what its code has told the user: the turn can end."""
    output: str = ""
    """What is told of the last reply's code, if it went well and nothing came after it."""
    notices: tuple[str, ...] = ()
    """Those in it that are ours."""
    model: str = ""
    """Who replied last."""
    corrections: int = 0
    """Replies in a row that could not be taken as they were."""
    unusable: str = ""
    """Why the answer is none: it was sent back as often as it may be."""
    acts: Mapping[str, int] = {}
    """How often each action gave the same result, by what both say."""
    repeated: int = 0
    """How often the last one did."""
    errors: Mapping[str, int] = {}
    """How often code failed with each, by its last line."""
    error: str = ""
    """The last one; empty once something went well."""
    approaches: int = 0
    """How often it was made to go about it differently."""
    without: tuple[str, ...] = ()
    """What was wanted and could not be had, so far."""
    end: End | None = None

    @property
    def is_failing(self) -> bool:
        """With the same error, as often as it may."""
        return self.errors.get(self.error, 0) >= TRIES[self.approaches]

    @property
    def is_stuck(self) -> bool:
        """It was told that it goes round in circles, and went on."""
        return self.repeated > REPEATS or (self.is_failing and self.approaches == 2)


class State(Struct, frozen=True, kw_only=True):
    opened: SessionOpened | None = None
    title: str = ""
    checkpoints: bool = False
    """Git checkpoints are made."""
    glance: str = ""
    """What the model was told last of the files."""
    past: tuple[tuple[Turn, ...], ...] = ()
    """Turns that are over, on shelves, so that adding one to many thousands stays cheap."""
    turn: Turn | None = None
    """The turn under way, or cut off."""
    open: Mapping[ActionId, OpenAction] = {}
    notes: tuple[str, ...] = ()
    """What the model must be told with the next message."""
    mode: Mode = "auto"
    granted: frozenset[str] = frozenset()
    """Patterns."""
    private: bool = False
    """It may have read what is the user's own. This and the next never go back, whatever is undone."""
    untrusted: bool = False
    """It has read what somebody else wrote."""
    cells: int = 0
    undone: frozenset[int] = frozenset()
    """Cells whose effects are not there any more."""
    taken: tuple[Taken, ...] = ()
    """Undos that a redo can take back, the last one last; until something is said or a cell runs."""
    effects: tuple[tuple[int, str], ...] = ()
    """What was done outside the session, where no undo reaches, each after which cell began; the last of it."""
    executed: tuple[ActionId, ...] = ()
    """The last of the user's own cells: a command that is sent again must not run again."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None once any reply had no known price."""

    @property
    def turns(self) -> Iterator[Turn]:
        """All of them, the open one last."""
        yield from chain.from_iterable(self.past)
        if self.turn:
            yield self.turn

    @property
    def path(self) -> tuple[int, ...]:
        """The cells whose effects are there."""
        return tuple(cell for cell in range(1, self.cells + 1) if cell not in self.undone)

    def effects_of(self, cells: Collection[int]) -> tuple[str, ...]:
        """What undoing these cells does not undo."""
        return tuple(what for cell, what in self.effects if cell in cells)

    @property
    def last(self) -> Turn | None:
        return self.turn or (self.past[-1][-1] if self.past else None)
