"""Asks the editor's user for approvals, and the agent's own questions. Several requests may be open at once.

A request shows what is asked verbatim. The engine denies an action that is too long to show, so it never gets here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from pinfold import events
from pinfold.app import CommandRefused
from pinfold.events import ApprovalRequested, Command, Decide, Event, Json, SessionId
from pinfold.front.acp.connection import Connection, RpcError
from pinfold.front.acp.updates import fenced
from pinfold.front.pages import describe_pattern
from pinfold.text import exact, exact_line, first_line, presentable_line

_TITLE = 200
_SCOPES: dict[str, events.Scope] = {"allow": "once", "session": "session", "always": "always"}
_ANSWER = "answer"
_OTHER = "other"


@dataclass(frozen=True)
class Permissions:
    connection: Connection
    session: SessionId
    submit: Callable[[Command], Awaitable[None]]
    tasks: TaskGroup
    has_forms: bool
    """The editor can show forms."""
    _asked: dict[events.ActionId, anyio.CancelScope] = field(default_factory=dict[events.ActionId, anyio.CancelScope])

    def take(self, event: Event) -> None:
        match event:
            case ApprovalRequested():
                self._dismiss(event.id)  # asked again: what was shown is outdated
                self._asked[event.id] = scope = anyio.CancelScope()
                self.tasks.start_soon(self._ask, event, scope)
            case events.ApprovalDecided() | events.ActionDenied() | events.ActionFinished():
                self._dismiss(event.id)
            case _:
                pass

    def _dismiss(self, id_: events.ActionId) -> None:
        if scope := self._asked.pop(id_, None):
            scope.cancel()

    async def _ask(self, event: ApprovalRequested, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                decide = await (self._question(event) if event.question else self._approval(event))
            except RpcError as error:
                words = f"the editor could not ask the user: {presentable_line(str(error))}"
                decide = Decide(id=event.id, digest=event.digest, verdict="deny", words=words)
            # From here on it is decided: the event of this decision must not cancel the scope.
            if self._asked.get(event.id) is scope:
                del self._asked[event.id]
            try:
                await self.submit(decide)
            except CommandRefused:  # answered elsewhere, or the action was stopped
                return

    async def _approval(self, event: ApprovalRequested) -> Decide:
        shows = exact(event.shows.rstrip("\n"))
        options = _options(event)
        is_diff = "\n@@ -" in f"\n{shows}"
        content = [fenced(exact(event.reason)), *([fenced(shows, "diff" if is_diff else "")] if shows else [])]
        # Some editors show only the title, so it includes the command.
        title = exact_line(event.reason) + (f": {first_line(shows)}" if shows and not is_diff else "")
        chosen = await self._choose(event, title, content, options)
        if chosen in _SCOPES and any(one["optionId"] == chosen for one in options):
            return Decide(id=event.id, digest=event.digest, verdict="allow", scope=_SCOPES[chosen])
        words = "the user said no" if chosen == "deny" else "the user gave no answer"
        return Decide(id=event.id, digest=event.digest, verdict="deny", words=words)

    async def _question(self, event: ApprovalRequested) -> Decide:
        if self.has_forms:
            answer = await self._fill_form(event)
        elif event.options:
            choices = [
                {"optionId": f"option-{number}", "name": presentable_line(words), "kind": "allow_once"}
                for number, words in enumerate(event.options)
            ]
            skip = {"optionId": "skip", "name": "Do not answer", "kind": "reject_once"}
            chosen = await self._choose(
                event, exact_line(event.reason), [fenced(exact(event.reason))], [*choices, skip]
            )
            by_id = {f"option-{number}": words for number, words in enumerate(event.options)}
            answer = by_id.get(chosen, "")
        else:
            words = "the user's editor has no form for a question; end the turn with the question as your answer"
            return Decide(id=event.id, digest=event.digest, verdict="deny", words=words)
        if answer:
            return Decide(id=event.id, digest=event.digest, verdict="allow", words=answer)
        return Decide(id=event.id, digest=event.digest, verdict="deny", words="the user gave no answer")

    async def _choose(self, event: ApprovalRequested, title: str, content: list[Json], options: list[Json]) -> str:
        """Return the id of the chosen option; empty if none was chosen."""
        call = {"toolCallId": event.id, "title": first_line(title, _TITLE), "status": "pending", "content": content}
        params = {"sessionId": self.session, "toolCall": call, "options": options}
        match await self.connection.request("session/request_permission", params):
            case {"outcome": {"outcome": "selected", "optionId": str(chosen)}}:
                return chosen
            case _:
                return ""

    async def _fill_form(self, event: ApprovalRequested) -> str:
        fields: dict[str, Json] = {_ANSWER: {"type": "string", "title": "Answer"}}
        if event.options:
            fields[_ANSWER]["enum"] = [*map(presentable_line, event.options)]
            fields[_OTHER] = {"type": "string", "title": "Another answer"}
        schema = {"type": "object", "properties": fields, "required": [] if event.options else [_ANSWER]}
        params = {"sessionId": self.session, "toolCallId": event.id, "mode": "form", "message": exact(event.reason)}
        match await self.connection.request("elicitation/create", {**params, "requestedSchema": schema}):
            case {"action": "accept", "content": {**given}}:
                return next((str(given[name]) for name in (_OTHER, _ANSWER) if given.get(name)), "")
            case _:
                return ""


def _options(event: ApprovalRequested) -> list[Json]:
    bundled = " (all such calls of this cell)" if event.bundled else ""
    options = [{"optionId": "allow", "name": f"Allow once{bundled}", "kind": "allow_once"}]
    if event.pattern:
        covers = describe_pattern(exact_line(event.pattern))
        options.append({"optionId": "session", "name": f"Allow in this session: {covers}", "kind": "allow_always"})
        if event.stored:
            options.append({"optionId": "always", "name": f"Always allow: {covers}", "kind": "allow_always"})
    return [*options, {"optionId": "deny", "name": "Deny", "kind": "reject_once"}]
