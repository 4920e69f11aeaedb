"""Runs one turn: performs actions and calls the model, until a reply proposes no more actions.

Model calls are retried behind the circuit breaker, then other models are asked. A model that keeps making the same
error is shown the state again, then starts the turn over.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from contextlib import aclosing
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

import anyio
from msgspec.structs import replace

from pinfold.engine.actions import settle
from pinfold.engine.compaction import fits, make_room
from pinfold.engine.context import request_of
from pinfold.engine.core import Core, TurnStopped
from pinfold.engine.hooks import HookFailed
from pinfold.engine.ports import Model, Spent
from pinfold.engine.state import Turn
from pinfold.events import (
    ApproachChanged,
    AssistantMessage,
    ContextTooLong,
    Event,
    ModelCalled,
    ModelFailed,
    ModelOutput,
    ModelReplied,
    Noticed,
    PinfoldError,
    Reply,
    Request,
    RequestFailed,
    SessionRewound,
    TextDelta,
    Thought,
    TurnEnded,
    TurnId,
    Undo,
    UserMessage,
    plain_json,
)
from pinfold.text import NO_OUTPUT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

log = logging.getLogger(__name__)
_LONGEST_WAIT_S = 60.0


async def run_turn(core: Core, id_: TurnId) -> TurnEnded:
    """Perform actions and ask the model until there is an answer. Raises TurnStopped and other PinfoldErrors."""
    while True:
        await settle(core, id_)
        turn = core.state.turn
        if turn is None:
            raise TurnStopped("the turn ended from outside")
        if end := _find_end(core, turn):
            if await _is_accepted(core, turn, end.text):
                return _find_end(core, core.state.turn or turn) or end
            turn = core.state.turn or turn
        _check_budget(core, turn)
        if turn.is_failing or turn.is_stuck:
            turn = await _progress(core, turn)
        await ask(core, turn)


def _find_end(core: Core, turn: Turn) -> TurnEnded | None:
    if turn.answer is not None:
        return _end_event(turn, _final_answer(core, turn, turn.answer))
    if (printed := core.printed_answer(turn)) is not None:
        return _end_event(turn, printed, printed=True)
    return None


async def _is_accepted(core: Core, turn: Turn, answer: str) -> bool:
    """Let the verifier check the answer, once per turn and only while steps are left to correct it."""
    if core.verifier is None or turn.is_checked or turn.steps >= core.budget.max_steps:
        return True
    checked = await core.verifier.verify(turn.said, answer)
    said = checked.notice or (f"The verifier refused the answer: {checked.faults}" if checked.faults else "")
    verdict = ApproachChanged(
        turn=turn.id,
        error=checked.faults,
        times=1,
        verdict="refused" if checked.faults else "accepted",
        usage=checked.usage,
        cost=checked.cost,
    )
    await core.record(*([Noticed(text=said)] if said else []), verdict)
    return not checked.faults


def _end_event(turn: Turn, text: str, *, printed: bool = False) -> TurnEnded:
    return TurnEnded(turn=turn.id, text=text, usage=turn.usage, cost=turn.cost, without=turn.without, printed=printed)


def _final_answer(core: Core, turn: Turn, answer: str) -> str:
    if fault := core.fault_of(answer):
        raise TurnStopped(fault)
    if turn.unusable:
        raise TurnStopped(f"{turn.model} gave no usable answer: {turn.unusable}")
    if core.form:
        return core.form.finish_answer(answer)
    without = f"\n\n(Done without {'; without '.join(turn.without)}.)"
    return f"{answer.rstrip()}{without}".lstrip() if turn.without else answer


def _check_budget(core: Core, turn: Turn) -> None:
    budget, state = core.budget, core.state
    if turn.steps >= budget.max_steps:
        raise TurnStopped(f"stopped after {turn.steps} steps, the limit (max_steps)", at_limit=True)
    _check_limit("this turn", Spent(tokens=turn.usage.total, cost=turn.cost), budget.max_tokens, budget.max_cost)
    spent = Spent(tokens=state.usage.total, cost=state.cost)
    _check_limit("this session", spent, budget.session_tokens, budget.session_cost)
    if core.ledger and (budget.day_tokens is not None or budget.day_cost is not None):
        _check_limit("today", core.ledger.today(), budget.day_tokens, budget.day_cost)


def _check_limit(span: str, spent: Spent, tokens: int | None, cost: float | None) -> None:
    """Raise TurnStopped if a limit is reached."""
    if tokens is not None and spent.tokens >= tokens:
        raise TurnStopped(f"stopped after {spent.tokens:,} tokens {span}, the limit is {tokens:,}", at_limit=True)
    if cost is None:
        return
    if spent.cost is None:
        raise TurnStopped(f"stopped: a cost limit for {span} is set but the price of a model is not known")
    if spent.cost >= cost:
        raise TurnStopped(f"stopped after ${spent.cost:.4f} {span}, the limit is ${cost:.4f}", at_limit=True)


async def _progress(core: Core, turn: Turn) -> Turn:
    """Change the approach or the model of a turn without progress. Raises TurnStopped if nothing is left to try."""
    stronger = core.escalate if core.escalate and turn.model != core.escalate.name else None
    if turn.is_failing and not (turn.is_stuck and stronger):
        if await _change_approach(core, turn):
            return core.state.turn or turn
        turn = replace(turn, approaches=2)
    if not turn.is_stuck:
        return turn
    if stronger is None:
        again = f"making the same error: {turn.error}" if turn.error else "doing the same thing with the same result"
        raise TurnStopped(f"stopped: the model keeps {again}")
    await core.record(Noticed(text=f"{turn.model} keeps repeating itself; {stronger.name} continues from here"))
    return turn


async def _change_approach(core: Core, turn: Turn) -> bool:
    """Show the model the data again, or the next time start the turn over. False if both were tried."""
    times = turn.errors[turn.error]
    # The message and the code of the turn name the files that `describe_state` shows.
    codes = [plain_json(call.args) for one in turn.messages if isinstance(one, AssistantMessage) for call in one.calls]
    if turn.approaches == 0:
        events: list[Event] = [Noticed(text=f"the same error {times} times ({turn.error}): looking at the data again")]
    # Starting over would repeat effects that cannot be undone.
    elif turn.approaches == 1 and not any(cell >= turn.cells_before for cell, _ in core.state.effects):
        events = [
            Noticed(text=f"the same error {times} times ({turn.error}): starting over"),
            *await _undo_cells(core, turn),
        ]
    else:
        return False
    changed = ApproachChanged(
        turn=turn.id,
        error=turn.error,
        times=times,
        look=await core.runner.describe_state("\n".join([turn.said, *codes])),
        started_over=turn.approaches == 1,
        private=core.runner.is_exposed,
    )
    await core.record(*events, changed)
    return True


async def _undo_cells(core: Core, turn: Turn) -> list[Event]:
    """Undo the cells of the turn and return the event; if that fails, variables and files stay as they are."""
    path = core.state.path
    if not any(cell > turn.cells_before for cell in path):
        return []
    try:
        gone = await core.runner.rewind(Undo(to=max((cell for cell in path if cell <= turn.cells_before), default=0)))
    except PinfoldError:
        return []
    return [SessionRewound(to=gone.to, undone=gone.undone, redone=gone.redone, notices=gone.notices)]


def model_key(name: str) -> str:
    """The model's name in the circuit breaker."""
    return f"the model {name}"


async def ask(core: Core, turn: Turn, *, again: bool = False) -> None:
    """Ask for a reply and record it. Raises TurnStopped if no model replies. `again`: one was refused as too long."""
    if not again and await make_room(core, turn):
        turn = core.state.turn or turn
    try:
        request = request_of(core.state, core.runner.schemas(), core.settings)
        images = [image for one in request.messages if isinstance(one, UserMessage) for image in one.images]
        found = {image.blob: core.runner.picture(image.blob) for image in images}
        blobs = {blob: data for blob, data in found.items() if data is not None}
        request = await core.hooks.before_model(replace(request, blobs=blobs))
    except HookFailed as failure:
        raise TurnStopped(f"a before_model hook {failure}") from failure
    models = _models_to_ask(core, turn)
    if (stronger := core.escalate) and models[0] is not stronger and not fits(core, request):
        said = f"the conversation does not fit into {models[0].name}; {stronger.name} goes on from here"
        await core.record(Noticed(text=said))
        models = (stronger, *models)
    failures: list[str] = []
    temporary = False
    for model, following in zip_longest(models, models[1:]):
        reply = await _try_model(core, turn.id, model, request, following.name if following else "")
        if isinstance(reply, Reply):
            core.gauge.learn(request, reply.usage.input_tokens)
            await _record_reply(core, turn.id, model.name, reply)
            return
        failures.append(f"{model.name}: {reply}")
        if isinstance(reply, ContextTooLong):
            core.gauge.window = reply.size or core.gauge.window
            if not again and await make_room(core, turn, refused=True):
                await ask(core, core.state.turn or turn, again=True)
                return
            failures[-1] += "; use a model with a larger context, or start anew with /clear"
        temporary = temporary or reply.retryable
    raise TurnStopped("; ".join(failures), temporary=temporary)


def _models_to_ask(core: Core, turn: Turn) -> Sequence[Model]:
    """Return the models to ask, in order. A turn stays with the model that replied last."""
    stronger = core.escalate
    if stronger and (turn.is_stuck or turn.model == stronger.name):
        return (stronger, core.model, *core.fallbacks)
    models = (core.model, *core.fallbacks)
    names = [model.name for model in models]
    return models[names.index(turn.model) :] if turn.model in names else models


async def _try_model(core: Core, turn: TurnId, model: Model, request: Request, instead: str) -> Reply | RequestFailed:
    """Return this model's reply, retrying within the budget, or the failure. `instead` names the model to ask next."""
    name, line, size = model.name, model_key(model.name), _size(request)

    async def record_failure(failure: RequestFailed, wait_s: float | None = None) -> RequestFailed:
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
        return failure

    attempt = 0
    while True:
        attempt += 1
        if wait_s := core.breaker.wait_s(line):
            return await record_failure(RequestFailed(f"it keeps failing and is paused for {wait_s:.0f} s"))
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
                return failure
            await anyio.sleep(wait_s)
        except BaseException as error:
            core.breaker.record_unknown(line)
            if not instead or not isinstance(error, PinfoldError):
                raise
            return await record_failure(RequestFailed(str(error), retryable=False))
        else:
            core.breaker.record_success(line)
            return reply


def _size(request: Request) -> int:
    told = plain_json(replace(request, blobs={}))
    return len(told.encode("utf-8", "surrogatepass")) + sum(map(len, request.blobs.values()))


async def _record_reply(core: Core, turn: TurnId, name: str, reply: Reply) -> None:
    lack = _lacks(reply)
    fault = "" if reply.calls else core.fault_of(reply.text)
    if fault:
        fault = f"{fault}. Give the whole answer again."
    elif not reply.calls:
        fault = core.form_fault(reply.text)
    fields = {name: getattr(reply, name) for name in ModelOutput.__struct_fields__}
    fields["correction"] = reply.correction or lack or fault
    fields["unreadable"] = reply.unreadable or bool(lack)
    replied = ModelReplied(turn=turn, model=name, actions=reply.calls, **fields)
    if core.ledger and not reply.from_cache:
        core.ledger.add(reply.usage, reply.cost)
    notices = list(reply.notices)
    if reply.finish == "length":
        notices.append(f"{name} stopped at its limit of tokens; raise model.max_tokens to get more")
    await core.record(replied, *(Noticed(text=text) for text in notices))


def _lacks(reply: Reply) -> str:
    """Return the correction for a reply with neither an answer nor calls; empty for other replies."""
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
        # Never retry earlier than the server asks; a wait above the limit counts as failure.
        return failure.retry_after_s if failure.retry_after_s <= _LONGEST_WAIT_S else None
    ceiling = min(_LONGEST_WAIT_S, core.budget.retry_base_s * 2 ** (attempt - 1))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
