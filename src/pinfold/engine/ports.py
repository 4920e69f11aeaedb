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
        """Append in order; return when the events are on disk."""
        ...

    async def append_soon(self, *events: Event) -> None:
        """Append in order without waiting for the disk; subscribers see the events once they are on disk."""
        ...

    def follow(self, callback: Callable[[Entry], None]) -> None:
        """Call `callback` for every future event, in order, before its `append` returns."""
        ...

    def broadcast(self, delta: Delta) -> None: ...


class Model(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        """Yield pieces of text and reasoning as they arrive, then the whole reply. Raises RequestFailed."""
        ...


class Form(Protocol):
    """A required form of the answer."""

    def fault(self, text: str) -> str:
        """Return what is wrong with an answer, worded for the model; empty if nothing is."""
        ...

    def finish_answer(self, text: str) -> str:
        """Return a valid answer in the form that the user gets."""
        ...

    def find_printed(self, output: str) -> str | None:
        """Return the answer that code printed; None if it is not a complete answer."""
        ...


class Verified(Struct, frozen=True, kw_only=True):
    """The result of checking an answer."""

    faults: str = ""
    """Why the answer is refused; empty if it is accepted."""
    notice: str = ""
    """Tells the user why the answer could not be checked."""
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
    """None if the price of any part is unknown."""


class Performed(Outcome, frozen=True, kw_only=True):
    """The outcome of an action, with fields that are not recorded."""

    whole: Json | UnsetType = UNSET
    """The result for a calling cell, if it differs from the text that the model sees."""
    at_fault: str | None = None
    """The tool that failed, for the circuit breaker; None if it worked or was called wrongly."""
    stopped: Stopped = ""
    missing: str = ""
    """The package that a cell lacks, if it can be installed."""

    def after(self, attempt: Performed | None) -> Performed:
        """Add to this outcome what an earlier attempt at the same action read and sent."""
        if attempt is None:
            return self
        return replace(
            self,
            private=self.private or attempt.private,
            untrusted=self.untrusted or attempt.untrusted,
            sent=(*attempt.sent, *self.sent),
        )


class PolicyContext(Struct, frozen=True, kw_only=True):
    """What policy considers in addition to the action."""

    mode: Mode
    grants: frozenset[str] = frozenset()
    """Patterns the user has granted to this session, or to the cell that asks."""
    private: bool = False
    untrusted: bool = False
    stopped: Stopped = ""
    """Set if the action failed as read-only; it is now judged as one that writes."""


class Rewound(Struct, frozen=True, kw_only=True):
    """The result of an undo or redo."""

    to: int
    undone: tuple[int, ...] = ()
    redone: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()


OnCall: TypeAlias = Callable[[str, Mapping[str, Json]], Awaitable[Performed]]
"""Performs a call that a cell makes, from its proposal to its outcome."""


class NotShown(PinfoldError):
    """An action is denied because it cannot be shown whole for approval. Says why and what to do instead."""


class ActionRunner(Protocol):
    """Performs actions: the sandbox and the tools, behind policy."""

    def schemas(self) -> tuple[ToolSchema, ...]: ...

    def action(self, call: Call) -> Action: ...

    def effect(self, action: Action) -> Effect: ...

    def parallel_safe(self, action: Action) -> bool: ...

    def counts_as_cell(self, action: Action) -> bool:
        """True if the action counts as a cell, which can be undone."""
        ...

    def judge(self, action: Action, given: PolicyContext) -> Verdict: ...

    async def preview_action(self, action: Action) -> str:
        """Return a preview for the user who decides. Raises Unavailable, NotShown."""
        ...

    def freeze_session(self, action: Action, given: PolicyContext) -> AbstractAsyncContextManager[None]:
        """Keep the session from changing what the user is shown, from the question to the end of the action."""
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
        """Perform the action; `cell` is its number if it is a cell. Raises Unavailable if it could not be tried."""
        ...

    async def undo_cell(self, cell: int) -> tuple[str, ...] | None:
        """Undo `cell`, the last one, so that it can run again. Returns notices; None if it cannot be undone."""
        ...

    @property
    def is_exposed(self) -> bool:
        """True if what ran, or what the model was given, may include private data."""
        ...

    def picture(self, blob: BlobId) -> bytes | None:
        """Return the bytes of a recorded picture; None if they are gone."""
        ...

    async def summarize_files(self) -> str:
        """Return a file list for the model; empty if the model can list files itself."""
        ...

    async def describe_state(self, about: str) -> str:
        """Describe the variables, and the files that `about` names, for a model that keeps failing."""
        ...

    def hint(self, text: str) -> str:
        """Return hints on tools that may help with `text` and that the model does not know; empty if there are none."""
        ...

    def inventory(self) -> str:
        """List the variables in one line, for a model that has not seen them; empty if there are none."""
        ...

    async def rewind(self, command: Undo | Redo) -> Rewound:
        """Undo or redo. If this raises PinfoldError, nothing has changed."""
        ...
