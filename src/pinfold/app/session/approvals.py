"""Answering what a session asks: the question is fit to be shown, and a yes is bound to the exact bytes."""

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
    """A question to `Agent(approve=...)`: may this run? Or, if it is the agent's own `question`: what is the answer?

    Its words are fit to be shown; `action` is exact.
    """

    action: Action
    reason: str
    shows: str = ""
    """What it would do, as far as that can be told before: a diff, a parsed command, what would be deleted."""
    pattern: str = ""
    """What a yes for the session or for always covers; empty where there is no such yes."""
    stored: str = ""
    """Where a yes for always is kept; empty where there is no such yes."""
    bundled: bool = False
    """A yes covers all calls of the pattern that the same cell makes."""
    question: bool = False
    options: tuple[str, ...] = ()
    """Answers it would like to choose from."""


class Decision(Struct, frozen=True, kw_only=True):
    """The answer, where a plain yes or no is not enough."""

    allow: bool
    scope: Scope = "once"
    words: str = ""
    """Why not, for the model; or the answer to its question."""


Said: TypeAlias = bool | str | Decision
"""Text is the answer to a question, or no with these words."""
Approve: TypeAlias = Callable[[Approval], Awaitable[Said] | Said]
"""A plain function is called in a thread: it may wait for an answer."""
Whom: TypeAlias = Callable[[OpenAction], Approve | None]
"""Finds who answers for this action; None denies it."""


async def answer_approvals(live: LiveSession, whom: Whom) -> None:
    """Answer those that wait already, then all that come, one at a time."""
    async with live.subscribe(live.log.seq) as feed:
        for id_ in tuple(live.pending_approvals()):
            await _answer(live, whom, id_)
        async for item in feed:
            if isinstance(item, Entry) and isinstance(item.event, ApprovalRequested):
                await _answer(live, whom, item.event.id)


async def _answer(live: LiveSession, whom: Whom, id_: ActionId) -> None:
    waiting = live.pending_approvals().get(id_)
    if waiting is None or waiting.asked is None:
        return  # answered elsewhere meanwhile
    asked, approve = waiting.asked, whom(waiting)
    if approve is None:
        answer: Said = Decision(allow=False, words=f"{asked.reason}, and nobody is there to ask")
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
    # What cannot be granted for as long still got a yes.
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
