"""Gets policy's verdict on an action, and the user's decision where one is needed. Approvals bind to exact bytes."""

from __future__ import annotations

import hashlib
from datetime import datetime

import anyio
import msgspec
from msgspec.structs import replace

from pinfold.engine.core import Core
from pinfold.engine.ports import NotShown, PolicyContext, Stopped
from pinfold.engine.state import OpenAction
from pinfold.events import (
    Action,
    ActionAllowed,
    ActionDenied,
    ActionId,
    Allow,
    ApprovalDecided,
    ApprovalRequested,
    Ask,
    Deny,
    plain_json,
)

_UNATTENDED = "no user can be asked; decide yourself, and state your assumptions"


def is_bound_by_plan(core: Core, item: OpenAction) -> bool:
    """True if the model may change nothing yet, because the user has not agreed to its plan."""
    return core.state.plan.locked and item.proposed.by != "user"


def digest_of(id_: ActionId, action: Action, shows: str = "") -> str:
    """Return the digest that binds an approval to this one action, its exact bytes, and its preview."""
    return hashlib.sha256(plain_json([id_, msgspec.to_builtins(action), shows]).encode()).hexdigest()


def policy_context(core: Core, item: OpenAction, stopped: Stopped = "") -> PolicyContext:
    state = core.state
    cell = state.open.get(item.proposed.parent) if item.proposed.parent else None
    grants = state.granted | (cell.bundle if cell else frozenset[str]())
    mode = "read-only" if is_bound_by_plan(core, item) else state.mode
    return PolicyContext(mode=mode, grants=grants, private=state.private, untrusted=state.untrusted, stopped=stopped)


async def judge(
    core: Core, id_: ActionId, asking: anyio.Lock | None = None, stopped: Stopped = ""
) -> ActionAllowed | None:
    """Get policy's verdict, unless there is one already. A plain allow is returned; others are recorded.

    `asking` is held while the user is asked, because the answer may also settle the next question.
    """
    item = core.state.open[id_]
    if item.stage != "proposed" and not stopped:
        return None
    verdict = core.runner.judge(item.proposed.action, policy_context(core, item, stopped))
    if asking is not None and isinstance(verdict, Ask):
        async with asking:
            allowed = await judge(core, id_, None, stopped)
            if allowed is None:
                await settle_approval(core, id_)
            return allowed
    match verdict:
        case Allow(rule=rule, read_only=read_only):
            return ActionAllowed(id=id_, rule=rule, read_only=read_only)
        case Deny(reason=reason):
            await core.record(ActionDenied(id=id_, reason=reason))
        case Ask() as ask:
            await _ask(core, item, ask)
    return None


async def settle_approval(core: Core, id_: ActionId) -> None:
    """Wait until the pending question, if any, is decided. Ask again if the decision no longer holds."""
    await _wait_for_decision(core, id_)
    while await _is_stale(core, core.state.open[id_]):
        await _wait_for_decision(core, id_)


async def _preview(core: Core, item: OpenAction) -> str | None:
    """Return the preview. If the action cannot be shown whole, deny it and return None."""
    try:
        return await core.runner.preview_action(item.proposed.action)
    except NotShown as error:
        await core.record(ActionDenied(id=item.proposed.id, reason=str(error)))
        return None


async def _ask(core: Core, item: OpenAction, ask: Ask) -> None:
    id_, action = item.proposed.id, item.proposed.action
    shows = "" if core.unattended or ask.question else await _preview(core, item)
    if shows is None:
        return
    is_grantable = bool(ask.pattern and not ask.is_flow)
    await core.record(
        ApprovalRequested(
            id=id_,
            reason=ask.reason,
            digest=digest_of(id_, action, shows),
            shows=shows,
            pattern=ask.pattern,
            stored=core.runner.grants_at if is_grantable else "",
            bundled=is_grantable and item.proposed.parent is not None,
            question=ask.question,
            options=ask.options,
            caller=ask.caller,
        )
    )


async def _is_stale(core: Core, item: OpenAction) -> bool:
    """True if the approval is too old or the preview has changed; then the user is asked again."""
    if item.stage != "allowed" or item.asked is None or item.asked.question:
        return False
    shows = await _preview(core, item)
    age_s = (core.clock() - datetime.fromisoformat(item.decided_at)).total_seconds()
    if shows is None or (shows == item.asked.shows and age_s <= core.approval_s):
        return False
    await core.record(replace(item.asked, shows=shows, digest=digest_of(item.proposed.id, item.proposed.action, shows)))
    return True


async def _wait_for_decision(core: Core, id_: ActionId) -> None:
    """Wait without a time limit for a pending decision: it may come days later, from any front end."""
    while (item := core.state.open[id_]).stage == "asking":
        if core.unattended and not (item.asked and item.asked.caller):
            is_question = item.asked is not None and item.asked.question
            words = _UNATTENDED if is_question else f"{item.reason}, and no user can be asked"
            await core.record(ApprovalDecided(id=id_, verdict="deny", by="nobody", words=words))
        else:
            await core.wait_for_change()
