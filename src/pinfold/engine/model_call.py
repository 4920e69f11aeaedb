"""One step: ask the model, with retries behind the circuit breaker and others to fall back to, and record the reply."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import chain
from typing import TYPE_CHECKING, cast

import anyio
from msgspec.structs import replace

from pinfold.engine.core import Core, TurnStopped
from pinfold.engine.hooks import HookFailed
from pinfold.engine.ports import Model
from pinfold.engine.state import State, Turn
from pinfold.events import (
    Json,
    ModelCalled,
    ModelFailed,
    ModelReplied,
    Noticed,
    PinfoldError,
    Reply,
    Request,
    RequestFailed,
    TextDelta,
    Thought,
    ToolSchema,
    TurnId,
    UserMessage,
    plain_json,
)
from pinfold.text import NO_OUTPUT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

log = logging.getLogger(__name__)
_LONGEST_WAIT_S = 60.0
_RECORDED = frozenset(Reply.__struct_fields__) & frozenset(ModelReplied.__struct_fields__)
"""Fields of a reply that are recorded under the same name."""


class _NoReply(Exception):
    """This model does not answer now; the next one may."""

    def __init__(self, failure: RequestFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


def the_model(name: str) -> str:
    """The model's name in the circuit breaker."""
    return f"the model {name}"


async def ask(core: Core, turn: Turn) -> None:
    """Record the next reply. Raises TurnStopped if no model gives one."""
    try:
        request = request_of(core.state, core.hands.schemas(), core.settings)
        request = await core.hooks.before_model(_with_pictures(core, request))
    except HookFailed as failure:
        raise TurnStopped(f"a before_model hook {failure}") from failure
    models = _to_ask(core, turn)
    failures: list[str] = []
    temporary = False
    for place, model in enumerate(models):
        instead = models[place + 1].name if place + 1 < len(models) else ""
        try:
            reply = await _try_model(core, turn.id, model, request, instead)
        except _NoReply as none:
            failures.append(f"{model.name}: {none.failure}")
            temporary = temporary or none.failure.retryable
        else:
            await _record_reply(core, turn.id, model.name, reply)
            return
    raise TurnStopped("; ".join(failures), temporary=temporary)


def _to_ask(core: Core, turn: Turn) -> Sequence[Model]:
    """The models to ask, in order. A turn stays with the model that replied last."""
    stronger = core.escalate
    if stronger and (turn.is_stuck or turn.model == stronger.name):
        return (stronger, core.model, *core.fallbacks)
    models = (core.model, *core.fallbacks)
    names = [model.name for model in models]
    return models[names.index(turn.model) :] if turn.model in names else models


def request_of(state: State, tools: tuple[ToolSchema, ...], settings: Mapping[str, Json]) -> Request:
    """What the model sees: a projection of the state, nothing else."""
    return Request(
        system=state.opened.prompt if state.opened else "",
        messages=tuple(chain.from_iterable(turn.messages for turn in state.turns)),
        tools=tools,
        settings=settings,
    )


def _with_pictures(core: Core, request: Request) -> Request:
    images = [image for message in request.messages if isinstance(message, UserMessage) for image in message.images]
    found = {image.blob: core.hands.picture(image.blob) for image in images}
    return replace(request, blobs={blob: data for blob, data in found.items() if data is not None})


async def _try_model(core: Core, turn: TurnId, model: Model, request: Request, instead: str) -> Reply:
    """This model's reply, with retries within the budget. Raises _NoReply."""
    name, line, size = model.name, the_model(model.name), _size(request)

    async def record_failure(failure: RequestFailed, wait_s: float | None = None) -> None:
        await core.record(
            ModelFailed(
                turn=turn,
                model=name,
                error=str(failure),
                status=failure.status,
                retry_in_s=wait_s,
                request_id=failure.request_id,
                breaker=core.breaker.state(line),
                instead=instead if wait_s is None else "",
            )
        )

    for attempt in range(1, core.budget.attempts + 1):
        if wait_s := core.breaker.wait_s(line):
            paused = RequestFailed(f"it keeps failing and is paused for {wait_s:.0f} s")
            await record_failure(paused)
            raise _NoReply(paused)
        await core.record(ModelCalled(turn=turn, model=name, attempt=attempt, size=size, to=core.destination(name)))
        try:
            reply = await _whole_reply(core, turn, model, request)
        except RequestFailed as failure:
            if failure.retryable:
                core.breaker.record_failure(line)
            else:
                core.breaker.record_unknown(line)
            log.warning("%s failed (attempt %d): %s", name, attempt, failure)
            wait_s = _retry_in(failure, attempt, core)
            await record_failure(failure, wait_s)
            if wait_s is None:
                raise _NoReply(failure) from failure
            await anyio.sleep(wait_s)
        except PinfoldError as error:
            core.breaker.record_unknown(line)
            if not instead:
                raise
            failure = RequestFailed(str(error), retryable=False)
            await record_failure(failure)
            raise _NoReply(failure) from error
        except BaseException:
            core.breaker.record_unknown(line)
            raise
        else:
            core.breaker.record_success(line)
            return reply
    raise AssertionError("the last attempt is never waited after")


def _size(request: Request) -> int:
    told = plain_json(replace(request, blobs={}))
    return len(told.encode("utf-8", "surrogatepass")) + sum(map(len, request.blobs.values()))


async def _record_reply(core: Core, turn: TurnId, name: str, reply: Reply) -> None:
    lack = _lacks(reply)
    fields = {name: getattr(reply, name) for name in _RECORDED}
    fields["correction"] = reply.correction or lack or _sent_back(core, reply)
    fields["unreadable"] = reply.unreadable or bool(lack)
    replied = ModelReplied(turn=turn, model=name, actions=reply.calls, **fields)
    if core.ledger and not reply.from_cache:
        core.ledger.add(reply.usage, reply.cost)
    notices = list(reply.notices)
    if reply.finish == "length":
        notices.append(f"{name} stopped at its limit of tokens; raise model.max_tokens to get more")
    await core.record(replied, *(Noticed(text=text) for text in notices))


def _lacks(reply: Reply) -> str:
    """The correction for a reply that holds no answer."""
    text = reply.text.strip()
    if not reply.calls and text == NO_OUTPUT:
        return f"`{NO_OUTPUT}` says that your code printed nothing; it is no answer. Print the result, or say in words what was done."
    if reply.calls or text:
        return ""
    if reply.finish == "length":
        return "Your reply ended at the limit of tokens before there was an answer. Think less, and write the answer."
    if reply.reasoning:
        return "Your reply holds thoughts and no answer. Write the answer."
    return "Your reply was empty. Write the answer, or call a tool."


def _sent_back(core: Core, reply: Reply) -> str:
    """The correction for an answer that is not acceptable."""
    if reply.calls:
        return ""
    fault = core.fault_of(reply.text)
    return f"{fault}. Give the whole answer again." if fault else core.misses(reply.text)


async def _whole_reply(core: Core, turn: TurnId, model: Model, request: Request) -> Reply:
    stream = cast("AsyncGenerator[str | Thought | Reply]", model.stream(request))
    async with aclosing(stream):
        async for piece in stream:
            match piece:
                case Reply():
                    return piece
                case Thought(text=text):
                    core.journal.broadcast(TextDelta(turn=turn, text=text, reasoning=True))
                case text:
                    core.journal.broadcast(TextDelta(turn=turn, text=text))
    raise RequestFailed("the reply broke off")


def _retry_in(failure: RequestFailed, attempt: int, core: Core) -> float | None:
    if not failure.retryable or attempt >= core.budget.attempts:
        return None
    if failure.retry_after_s is not None:
        # Never earlier than asked for; a longer wait than we are ready for is a failure.
        return failure.retry_after_s if failure.retry_after_s <= _LONGEST_WAIT_S else None
    ceiling = min(_LONGEST_WAIT_S, core.budget.retry_base_s * 2 ** (attempt - 1))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
