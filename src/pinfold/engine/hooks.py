"""Calls the user's hooks, at three points. Each call has a time limit; a broken hook never allows anything."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

import anyio

from pinfold.events import Action, CallTool, Delta, Deny, Entry, Request, RunCell

log = logging.getLogger(__name__)
Hook: TypeAlias = object
"""An object with one or more of: `async on_event(event)`, `async before_action(action)`, `async before_model(request)`.

`on_event` observes. `before_action` returns None, Deny(reason) or another action to judge instead; if it
fails or takes too long, the action is denied. `before_model` returns the request to send.
"""


class HookFailed(Exception): ...


class Hooks:
    def __init__(self, hooks: Iterable[Hook] = (), *, bound_s: float = 10.0) -> None:
        self._hooks = list(hooks)
        self._bound_s = bound_s

    @property
    def is_empty(self) -> bool:
        return not self._hooks

    def add(self, hook: Hook) -> None:
        self._hooks.append(hook)

    async def on_event(self, item: Entry | Delta) -> None:
        event = item.event if isinstance(item, Entry) else item
        for hook, call in self._calls_at("on_event"):
            try:
                await self._call_with_limit(call, event)
            except HookFailed as failure:
                log.warning("hook %s: %s", type(hook).__name__, failure)

    async def before_action(self, action: Action) -> Action | Deny:
        for hook, call in self._calls_at("before_action"):
            try:
                answer = await self._call_with_limit(call, action)
            except HookFailed as failure:
                return Deny(f"the hook {type(hook).__name__} {failure}")
            match answer:
                case None:
                    pass
                case Deny():
                    return answer
                case RunCell() | CallTool():
                    action = answer
                case _:
                    returned = f"returned neither None, Deny nor an action but {type(answer).__name__}"
                    return Deny(f"the hook {type(hook).__name__} {returned}")
        return action

    async def before_model(self, request: Request) -> Request:
        for hook, call in self._calls_at("before_model"):
            answer = await self._call_with_limit(call, request)
            if not isinstance(answer, Request):
                raise HookFailed(f"{type(hook).__name__}.before_model returned no request")
            request = answer
        return request

    def _calls_at(self, point: str) -> list[tuple[Hook, Callable[[object], object]]]:
        return [(hook, getattr(hook, point)) for hook in self._hooks if hasattr(hook, point)]

    async def _call_with_limit(self, call: Callable[[object], object], given: object) -> object:
        try:
            with anyio.fail_after(self._bound_s):
                answer = call(given)
                return await answer if inspect.isawaitable(answer) else answer
        except TimeoutError as error:
            raise HookFailed(f"took longer than {self._bound_s:g} s") from error
        except Exception as error:
            raise HookFailed(f"failed: {type(error).__name__}: {error}") from error
