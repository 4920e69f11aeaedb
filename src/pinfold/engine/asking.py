"""One step: ask the model, with retries behind the circuit breaker, and put its reply on record."""

from __future__ import annotations

import logging
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

import anyio

from pinfold.engine.context import request_of
from pinfold.engine.core import Core, TurnStopped
from pinfold.engine.hooks import HookFailed
from pinfold.events import (
    ModelCalled,
    ModelFailed,
    ModelReplied,
    Reply,
    Request,
    RequestFailed,
    TextDelta,
    TurnId,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

log = logging.getLogger(__name__)
_LONGEST_WAIT_S = 60.0


async def ask(core: Core, turn: TurnId) -> None:
    """The next reply, on record. Raises TurnStopped when there will be none."""
    name = core.model.name
    try:
        request = await core.hooks.before_model(request_of(core.state, core.hands.schemas(), core.settings))
    except HookFailed as failure:
        raise TurnStopped(f"a before_model hook {failure}") from failure
    for attempt in range(1, core.budget.attempts + 1):
        if wait_s := core.breaker.wait_s(name):
            raise TurnStopped(f"{name} keeps failing and is paused for {wait_s:.0f} s", temporary=True)
        await core.record(ModelCalled(turn=turn, model=name, attempt=attempt))
        try:
            reply = await _whole_reply(core, turn, request)
        except RequestFailed as failure:
            core.breaker.failed(name)
            log.warning("%s failed (attempt %d): %s", name, attempt, failure)
            wait_s = _retry_in(failure, attempt, core)
            await core.record(_failed(turn, name, failure, wait_s))
            if wait_s is None:
                raise TurnStopped(f"{name}: {failure}", temporary=failure.retryable) from failure
            await anyio.sleep(wait_s)
        except BaseException:
            core.breaker.abandoned(name)
            raise
        else:
            core.breaker.succeeded(name)
            await core.record(
                ModelReplied(
                    turn=turn,
                    model=name,
                    text=reply.text,
                    actions=reply.calls,
                    usage=reply.usage,
                    cost=reply.cost,
                    request_id=reply.request_id,
                )
            )
            return


async def _whole_reply(core: Core, turn: TurnId, request: Request) -> Reply:
    stream = cast("AsyncGenerator[str | Reply]", core.model.stream(request))
    async with aclosing(stream):
        async for piece in stream:
            if isinstance(piece, Reply):
                return piece
            core.journal.broadcast(TextDelta(turn=turn, text=piece))
    raise RequestFailed("the reply broke off")


def _retry_in(failure: RequestFailed, attempt: int, core: Core) -> float | None:
    if not failure.retryable or attempt >= core.budget.attempts:
        return None
    if failure.retry_after_s is not None:
        # Never earlier than asked for; a longer wait than we are ready for is a failure.
        return failure.retry_after_s if failure.retry_after_s <= _LONGEST_WAIT_S else None
    ceiling = min(_LONGEST_WAIT_S, core.budget.retry_base_s * 2 ** (attempt - 1))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret


def _failed(turn: TurnId, name: str, failure: RequestFailed, wait_s: float | None) -> ModelFailed:
    return ModelFailed(
        turn=turn,
        model=name,
        error=str(failure),
        status=failure.status,
        retry_in_s=wait_s,
        request_id=failure.request_id,
    )
