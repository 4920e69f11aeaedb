"""The interfaces the engine needs. The app provides the implementations; the engine imports none of them."""

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
    Delta,
    Effect,
    Entry,
    Event,
    Json,
    Mode,
    Outcome,
    PinfoldError,
    Redo,
    Reply,
    Request,
    Thought,
    ToolSchema,
    Undo,
    Usage,
    Verdict,
)

OnOutput: TypeAlias = Callable[[Literal["stdout", "stderr"], str], None]
Stopped: TypeAlias = Literal["", "refused", "impossible"]
"""Why a read-only action did not finish: it has to change files, or the sandbox cannot enforce reading."""


class Journal(Protocol):
    """The session's log."""

    async def append(self, *events: Event) -> tuple[Entry, ...]:
        """Returns when the events are on disk."""
        ...

    async def append_soon(self, *events: Event) -> None:
        """Append in order without waiting for the disk; subscribers see the events once they are on disk."""
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
    """A required form of the answer."""

    def fault(self, text: str) -> str:
        """What is wrong with an answer, as told to the model; empty if nothing is."""
        ...

    def finish_answer(self, text: str) -> str:
        """A valid answer, as the user gets it."""
        ...

    def find_printed(self, output: str) -> str | None:
        """The answer that code printed; None if it is not a complete answer."""
        ...


class Verified(Struct, frozen=True, kw_only=True):
    """What came of the check of an answer."""

    faults: str = ""
    """Why it is refused; empty if it stands."""
    notice: str = ""
    """For the user: why it could not be checked."""
    usage: Usage | None = None
    cost: float | None = None


class Verifier(Protocol):
    async def verify(self, question: str, answer: str) -> Verified: ...


class Ledger(Protocol):
    """What this user has spent today, in all sessions."""

    def add(self, usage: Usage, cost: float | None) -> None: ...

    def today(self) -> Spent: ...


class Spent(Struct, frozen=True, kw_only=True):
    tokens: int = 0
    cost: float | None = 0.0
    """None once any of it had no known price."""


class Performed(Outcome, frozen=True, kw_only=True):
    """How an action went, bounded for the model; what is not recorded of it."""

    whole: Json | UnsetType = UNSET
    """The result for a calling cell, if it is not the text the model sees."""
    at_fault: str | None = None
    """The tool that failed, for the circuit breaker; None if it worked or was called wrongly."""
    stopped: Stopped = ""
    missing: str = ""
    """The package that a cell lacks, if it can be installed."""

    def after(self, attempt: Performed | None) -> Performed:
        """Including what an earlier attempt at the same action read and sent."""
        if attempt is None:
            return self
        return replace(
            self,
            private=self.private or attempt.private,
            untrusted=self.untrusted or attempt.untrusted,
            sent=(*attempt.sent, *self.sent),
        )


class Given(Struct, frozen=True, kw_only=True):
    """What policy considers besides the action."""

    mode: Mode
    grants: frozenset[str] = frozenset()
    """Patterns the user has granted to this session, or to the cell that asks."""
    private: bool = False
    untrusted: bool = False
    stopped: Stopped = ""
    """Set when it failed as a read-only action: now it is judged as one that writes."""


class Rewound(Struct, frozen=True, kw_only=True):
    """The result of an undo or redo."""

    to: int
    undone: tuple[int, ...] = ()
    redone: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()


OnCall: TypeAlias = Callable[[str, Mapping[str, Json]], Awaitable[Performed]]
"""Carries a call that a cell makes from its proposal to its end."""


class NotShown(PinfoldError):
    """An action cannot be shown whole, so it cannot be approved: it is denied. Says why and what to do instead."""


class Hands(Protocol):
    """Everything that can be done to the world: the sandbox and the tools, behind policy."""

    def schemas(self) -> tuple[ToolSchema, ...]: ...

    def action(self, call: Call) -> Action: ...

    def effect(self, action: Action) -> Effect: ...

    def parallel_safe(self, action: Action) -> bool: ...

    def counts_as_cell(self, action: Action) -> bool:
        """True if it counts as a cell, which can be undone."""
        ...

    def judge(self, action: Action, given: Given) -> Verdict: ...

    async def preview_action(self, action: Action) -> str:
        """A preview for the user who decides. Raises Unavailable, NotShown."""
        ...

    def freeze_session(self, action: Action, given: Given) -> AbstractAsyncContextManager[None]:
        """Keeps the session from changing what was shown, from the question to the end of the action."""
        ...

    async def grant(self, pattern: str) -> None:
        """Store a grant for all future sessions."""
        ...

    @property
    def grants_at(self) -> str:
        """Where grants are stored; empty if they are not."""
        ...

    async def perform(
        self,
        id: ActionId,
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
        """Undo this cell, the last one, so that it can run again. Returns notices; None if it cannot be undone."""
        ...

    @property
    def is_exposed(self) -> bool:
        """True if what ran, or what the model was given, may include private data."""
        ...

    def picture(self, blob: BlobId) -> bytes | None:
        """The bytes of a recorded picture; None if they are gone."""
        ...

    async def summarize_files(self) -> str:
        """A file list for the model; empty where it can look by itself."""
        ...

    async def describe_state(self, about: str) -> str:
        """The variables, and the files that `about` names, for a model that keeps failing."""
        ...

    def hint(self, text: str) -> str:
        """Hints on tools that may help with `text`; empty if the model knows them all, or none does."""
        ...

    def inventory(self) -> str:
        """One line that lists the variables, for a model that has not seen them; empty if there are none."""
        ...

    async def rewind(self, command: Undo | Redo) -> Rewound:
        """Raises PinfoldError; then nothing has changed."""
        ...
