"""Read a turn's events as pieces for clients of other protocols: text, thoughts, calls of client tools, the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.app.clients.submit import event_of
from pinfold.app.session.caller_tools import caller_name
from pinfold.engine import Budget
from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalRequested,
    CallTool,
    Delta,
    DisplayRef,
    Entry,
    ModelCalled,
    ModelReplied,
    RunCell,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    Usage,
)
from pinfold.text import cap_text

_OUTPUT = 1000
"""Characters of a cell's output that are shown among the thoughts."""
_AT_ONCE = Budget().side_by_side
Status: TypeAlias = Literal["completed", "waiting", "failed", "cancelled", "incomplete"]


class Said(Struct, frozen=True, kw_only=True):
    """Text for the user."""

    text: str
    message: int
    """Index of the message in the turn, from 0; the last message is the answer."""


class Thinking(Struct, frozen=True, kw_only=True):
    """The model's reasoning, and the code it runs with its output."""

    text: str


class Called(Struct, frozen=True, kw_only=True):
    """A call of one of the client's tools; it waits for the client's result."""

    id: ActionId
    name: str
    arguments: str


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a turn, or a pause in which it waits for the client."""

    status: Status
    usage: Usage = Usage()
    error: str = ""
    temporary: bool = False
    at: int = 0
    """Unix time."""


Piece: TypeAlias = Said | Thinking | Called | Ended


class TurnReader:
    """Converts the events of one turn into pieces. Deltas may be missing, because the log has the whole replies."""

    def __init__(
        self, turn: TurnId, tools: Iterable[str] = (), *, only_answer: bool = False, one_call: bool = False
    ) -> None:
        """`tools` are the client's. `only_answer` leaves out text before the answer."""
        self._at_once = 1 if one_call else _AT_ONCE
        self.displays: list[DisplayRef] = []
        self.usage = Usage()
        """Usage since the turn last waited for the client."""
        self._turn = turn
        self._at = ""
        self._tools = frozenset(tools)
        self.only_answer = only_answer
        self.message = 0
        self._streamed = ""
        self._thought = False
        self._replied = ModelReplied(turn=turn, model="", text="")
        self._open: dict[ActionId, ActionProposed] = {}
        self._asked: dict[ActionId, ApprovalRequested] = {}
        self._answered: set[ActionId] = set()

    def read(self, item: Entry | Delta) -> Iterator[Piece]:
        if isinstance(item, Entry):
            self._at = item.at
        match event_of(item):
            case TextDelta(turn=self._turn, text=text, reasoning=True):
                self._thought = True
                yield Thinking(text=text)
            case TextDelta(turn=self._turn, text=text):
                yield from self._say(text)
            case ModelCalled(turn=self._turn):
                self.message += bool(self._streamed)
                self._streamed, self._thought = "", False
            case ModelReplied(turn=self._turn) as replied:
                yield from self._finish_reply(replied)
            case ActionProposed(turn=self._turn) as proposed:
                self._open[proposed.id] = proposed
                yield from self._show_action(proposed)
            case ApprovalRequested(caller=True) as asked if asked.id in self._open:
                self._asked[asked.id] = asked
                yield from self._pause()
            case ActionFinished() as finished if finished.id in self._open:
                yield from self._finish_action(finished)
            case TurnEnded(turn=self._turn, text=text):
                yield from self._answer(text)
                yield self._end("completed")
            case TurnFailed(turn=self._turn) as failed:
                self.message += bool(self._streamed)
                yield Said(text=f"The turn failed: {failed.error}", message=self.message)
                status = "incomplete" if failed.at_limit else "failed"
                yield self._end(status, failed.error, temporary=failed.temporary)
            case TurnInterrupted(turn=self._turn, reason=reason):
                yield self._end("cancelled", reason)
            case _:
                pass

    def start_over(self) -> None:
        """Forget the pieces so far: an earlier request has delivered them."""
        self.usage, self.displays, self.message, self._streamed = Usage(), [], 0, ""

    def take_digest(self, call: ActionId) -> str | None:
        """Mark a waiting call as answered and return the digest its decision must name; None if it does not wait."""
        asked = self._asked.pop(call, None)
        if asked is None:
            return None
        self._answered.add(call)
        return asked.digest

    def _end(self, status: Status, error: str = "", *, temporary: bool = False) -> Ended:
        at = int(datetime.fromisoformat(self._at).timestamp()) if self._at else 0
        return Ended(status=status, usage=self.usage, error=error, temporary=temporary, at=at)

    def _say(self, text: str) -> Iterator[Said]:
        if text and not self.only_answer:
            self._streamed += text
            yield Said(text=text, message=self.message)

    def _finish_reply(self, replied: ModelReplied) -> Iterator[Piece]:
        self.usage += replied.usage
        if replied.reasoning and not self._thought:
            yield Thinking(text=replied.reasoning)
        if replied.text.startswith(self._streamed):
            yield from self._say(replied.text[len(self._streamed) :])
        self._replied = replied

    def _show_action(self, proposed: ActionProposed) -> Iterator[Thinking]:
        match proposed:
            case ActionProposed(by="model", action=RunCell(code=code)) if not self._replied.in_text:
                yield Thinking(text=f"\n```python\n{code.strip()}\n```\n")
            case ActionProposed(by="model", action=CallTool() as call) if not self._is_callers(call.tool):
                yield Thinking(text=f"\n`{call.tool}` {cap_text(json.dumps(call.args, default=repr), _OUTPUT)}\n")
            case _:
                pass

    def _finish_action(self, finished: ActionFinished) -> Iterator[Piece]:
        proposed = self._open.pop(finished.id)
        self._asked.pop(finished.id, None)
        self.displays += finished.displays
        is_callers = isinstance(proposed.action, CallTool) and self._is_callers(proposed.action.tool)
        if proposed.by == "model" and not is_callers and finished.observation.strip():
            yield Thinking(text=f"\n```\n{cap_text(finished.observation.strip(), _OUTPUT)}\n```\n")
        yield from self._pause()

    def _is_callers(self, tool: str) -> bool:
        return caller_name(tool, self._tools) in self._tools

    def _pause(self) -> Iterator[Piece]:
        """Yield the waiting calls and a pause, once every call that can be sent together waits for the client."""
        calls = [(id_, one) for id_, one in self._open.items() if isinstance(one.action, CallTool)]
        waiting = [id_ for id_, one in calls if id_ in self._asked and one.parent is not None]
        if not waiting:
            for id_, one in self._open.items():
                if one.parent is None and not (isinstance(one.action, CallTool) and self._is_callers(one.action.tool)):
                    break
                if id_ not in self._answered:
                    waiting.append(id_)
        waiting = waiting[: self._at_once]
        if not waiting or any(id_ not in self._asked for id_ in waiting):
            return
        for id_, one in calls:
            if id_ in waiting and isinstance(one.action, CallTool):
                name = caller_name(one.action.tool, self._tools)
                yield Called(id=id_, name=name, arguments=json.dumps(one.action.given))
        yield self._end("waiting")

    def _answer(self, text: str) -> Iterator[Said]:
        """Yield the part of the answer that was not streamed; code may have given the answer."""
        streamed = self._streamed
        if text.strip() == streamed.strip():
            return
        if streamed and text.startswith(streamed):
            yield Said(text=text[len(streamed) :], message=self.message)
            return
        self.message += bool(streamed)
        if text:
            yield Said(text=text, message=self.message)
