"""Answers the questions of a session. Each question is safe to display, and a yes is bound to the exact bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from typing import TypeAlias

from anyio import to_thread
from msgspec import Struct

from pinfold.app.session.live_session import LiveSession
from pinfold.engine import CommandRefused, OpenAction
from pinfold.events import Action, ActionId, ApprovalRequested, Decide, Entry, Scope
from pinfold.text import exact, presentable_line


class Approval(Struct, frozen=True, kw_only=True):
    """A question to `Agent(approve=...)`: may this action run? With `question` set, the agent wants an answer instead.

    Its texts are safe to display; `action` is exact.
    """

    action: Action
    reason: str
    shows: str = ""
    """What it would do, as far as known in advance: a diff, a parsed command, what would be deleted."""
    pattern: str = ""
    """What a yes for the session or for always covers; empty if only a single yes is possible."""
    stored: str = ""
    """Where a yes for always is stored; empty if there is no such yes."""
    bundled: bool = False
    """True if a yes covers all calls of the pattern that the same cell makes."""
    question: bool = False
    options: tuple[str, ...] = ()
    """Suggested answers to the question."""


class Decision(Struct, frozen=True, kw_only=True):
    """The answer, if a plain yes or no is not enough."""

    allow: bool
    scope: Scope = "once"
    words: str = ""
    """The reason for a no, for the model; or the answer to its question."""


Said: TypeAlias = bool | str | Decision
"""Text answers a question; for any other request it is a no with these words."""
Approve: TypeAlias = Callable[[Approval], Awaitable[Said] | Said]
"""A plain function is called in a thread, because it may block."""
FindApprover: TypeAlias = Callable[[OpenAction], Approve | None]
"""Returns the function that answers for this action; None denies it."""


async def answer_approvals(live: LiveSession, whom: FindApprover) -> None:
    """Answer the pending approvals, then each new one, one at a time."""
    async with live.subscribe(live.log.seq) as feed:
        for id_ in tuple(live.pending_approvals()):
            await _answer(live, whom, id_)
        async for item in feed:
            if isinstance(item, Entry) and isinstance(item.event, ApprovalRequested):
                await _answer(live, whom, item.event.id)


async def _answer(live: LiveSession, whom: FindApprover, id_: ActionId) -> None:
    waiting = live.pending_approvals().get(id_)
    if waiting is None or waiting.asked is None:
        return  # answered elsewhere meanwhile
    asked, approve = waiting.asked, whom(waiting)
    if approve is None:
        answer: Said = Decision(allow=False, words=f"{asked.reason}, and no user can be asked")
    else:
        approval = Approval(
            action=waiting.proposed.action,
            reason=exact(asked.reason),
            shows=exact(asked.shows),
            pattern=presentable_line(asked.pattern),
            stored=asked.stored,
            bundled=asked.bundled,
            question=asked.question,
            options=tuple(map(presentable_line, asked.options)),
        )
        answer = await _ask(approve, approval)
    if isinstance(answer, str):
        answer = Decision(allow=asked.question, words=answer)
    elif isinstance(answer, bool):
        answer = Decision(allow=answer)
    verdict = "allow" if answer.allow else "deny"
    # If a yes cannot last as long as given, it still counts for a shorter scope.
    scope = "session" if answer.scope == "always" and not asked.stored else answer.scope
    scope = scope if asked.pattern else "once"
    with suppress(CommandRefused):
        await live.submit(Decide(id=id_, digest=asked.digest, verdict=verdict, scope=scope, words=answer.words))


async def _ask(approve: Approve, approval: Approval) -> Said:
    if iscoroutinefunction(approve) or iscoroutinefunction(getattr(approve, "__call__", None)):  # noqa: B004
        answer = approve(approval)
    else:
        answer = await to_thread.run_sync(approve, approval)
    return await answer if isawaitable(answer) else answer
