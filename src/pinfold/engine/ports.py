"""What the engine needs of the world. The app puts the concrete things in; the engine imports none of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from pinfold.events import (
    Action,
    ActionId,
    BlobId,
    Call,
    Changed,
    Delta,
    DisplayRef,
    Effect,
    Entry,
    Event,
    FileChange,
    Json,
    Mode,
    PinfoldError,
    Redo,
    Reply,
    Request,
    Result,
    Sent,
    Thought,
    ToolSchema,
    Undo,
    Usage,
    Verdict,
)

OnOutput: TypeAlias = Callable[[Literal["stdout", "stderr"], str], None]
Stopped: TypeAlias = Literal["", "refused", "impossible"]
"""Why a read-only action did not come to its end: it has to change files; the sandbox cannot hold it to reading."""


class Journal(Protocol):
    """The session's log."""

    async def append(self, *events: Event) -> tuple[Entry, ...]:
        """Returns when the events are on disk."""
        ...

    async def append_soon(self, *events: Event) -> None:
        """In order, on disk with the next that are, and seen by nobody before."""
        ...

    def follow(self, callback: Callable[[Entry], None]) -> None:
        """Call back for every event from now on, in order, before `append` returns."""
        ...

    def broadcast(self, delta: Delta) -> None: ...


class Model(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        """Pieces of text and reasoning as they come, then the whole reply. Raises RequestFailed."""
        ...


class Form(Protocol):
    """What an answer must be, where not any words will do."""

    def fault(self, text: str) -> str:
        """What is wrong with an answer, for whoever gave it; empty if nothing is."""
        ...

    def finish_answer(self, text: str) -> str:
        """An answer without fault, as the user gets it."""
        ...

    def find_printed(self, output: str) -> str | None:
        """What code has printed as the answer; None if it is not all that an answer must be."""
        ...


class Ledger(Protocol):
    """What this user has spent today, in all sessions."""

    def add(self, usage: Usage, cost: float | None) -> None: ...

    def today(self) -> Spent: ...


class Spent(Struct, frozen=True, kw_only=True):
    tokens: int = 0
    cost: float | None = 0.0
    """None once any of it had no known price."""


class Performed(Struct, frozen=True, kw_only=True):
    """How an action went, bounded for the model."""

    outcome: Result
    observation: str
    value: str | None = None
    error: str | None = None
    """A cell's traceback; why an action was denied."""
    blobs: tuple[BlobId, ...] = ()
    displays: tuple[DisplayRef, ...] = ()
    variables: Changed | None = None
    files: tuple[FileChange, ...] = ()
    more_files: int = 0
    rolled_back: bool = False
    notices: tuple[str, ...] = ()
    """What the sandbox did about it; the observation says it too."""
    whole: Json | UnsetType = UNSET
    """What a cell that called gets of it, where that is not the text the model sees."""
    at_fault: str | None = None
    """The tool that failed by itself, for the circuit breaker; None if it worked or was used wrongly."""
    lacked: str = ""
    """What was wanted and could not be had."""
    private: bool = False
    """It may have read what is the user's own."""
    untrusted: bool = False
    """It brought in what somebody else wrote."""
    sent: tuple[Sent, ...] = ()
    usage: Usage | None = None
    """Of a model that was asked by it."""
    cost: float | None = None
    stopped: Stopped = ""
    missing: str = ""
    """The package that a cell lacks, where it can be installed."""

    def after(self, attempt: Performed | None) -> Performed:
        """With what an earlier attempt at the same action has read and sent."""
        if attempt is None:
            return self
        return replace(
            self,
            private=self.private or attempt.private,
            untrusted=self.untrusted or attempt.untrusted,
            sent=(*attempt.sent, *self.sent),
        )


class Given(Struct, frozen=True, kw_only=True):
    """What the judge goes by, besides the action."""

    mode: Mode
    grants: frozenset[str] = frozenset()
    """Patterns the user has granted to this session, or to the cell that asks."""
    private: bool = False
    untrusted: bool = False
    stopped: Stopped = ""
    """How it fared as a read-only action: now it is judged as one that writes."""


class Rewound(Struct, frozen=True, kw_only=True):
    """Where an undo or a redo has led."""

    to: int
    undone: tuple[int, ...] = ()
    redone: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()


OnCall: TypeAlias = Callable[[str, Mapping[str, Json]], Awaitable[Performed]]
"""Carries a call that a cell makes from its proposal to its end. One at a time."""


class NotShown(PinfoldError):
    """An action cannot be shown whole, so nobody can agree to it: it is denied. Says why and what to do instead."""


class Hands(Protocol):
    """Everything that can be done to the world: the sandbox and the tools, behind policy."""

    def schemas(self) -> tuple[ToolSchema, ...]: ...

    def action(self, call: Call) -> Action: ...

    def effect(self, action: Action) -> Effect: ...

    def parallel_safe(self, action: Action) -> bool: ...

    def is_step(self, action: Action) -> bool:
        """Whether it counts as a cell: an undo takes it back."""
        ...

    def judge(self, action: Action, given: Given) -> Verdict: ...

    async def preview_action(self, action: Action) -> str:
        """What it would do, for whoever decides, as far as that can be told before. Raises Unavailable, NotShown."""
        ...

    def freeze_session(self, action: Action, given: Given) -> AbstractAsyncContextManager[None]:
        """From the question to the end of the action: what was shown of it cannot be changed by the session meanwhile."""
        ...

    async def grant(self, pattern: str) -> None:
        """For all sessions to come."""
        ...

    @property
    def grants_at(self) -> str:
        """Where those are kept; empty where none are."""
        ...

    async def perform(
        self,
        id: ActionId,  # noqa: A002
        action: Action,
        on_output: OnOutput,
        on_call: OnCall,
        cell: int | None,
        *,
        read_only: bool = False,
    ) -> Performed:
        """Do it; `cell` is its number, if it is one. Raises Unavailable when it could not even be tried."""
        ...

    async def undo_cell(self, cell: int) -> tuple[str, ...] | None:
        """Undo this cell, the last that ran, so that it can run again; what there is to say of that. None: it cannot be."""
        ...

    @property
    def is_exposed(self) -> bool:
        """What runs or ran, or was told without asking, may have been the user's own."""
        ...

    def picture(self, blob: BlobId) -> bytes | None:
        """The bytes of a picture that was put on record; None if they are gone."""
        ...

    async def summarize_files(self) -> str:
        """What the model is told of the files there are, without asking; empty where it can look by itself."""
        ...

    async def describe_state(self, about: str) -> str:
        """How things are now: the variables, and the files that `about` names, for a model that keeps failing."""
        ...

    def hint(self, text: str) -> str:
        """What the model is told of tools that may be of use for `text`; empty where it knows them all, or none is."""
        ...

    def inventory(self) -> str:
        """What variables there are, in a line for a model that knows of none; empty where there are none."""
        ...

    async def rewind(self, command: Undo | Redo) -> Rewound:
        """Raises PinfoldError, and then nothing has changed."""
        ...
