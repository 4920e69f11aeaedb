"""Builds the context, which is all that the model sees, from the state. Pure functions.

A compaction leaves old results and messages out of the context; the state and the log keep them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from pinfold.engine.state import ActionRecord, State, plan_in_words
from pinfold.events import (
    ActionId,
    AssistantMessage,
    Json,
    Message,
    Request,
    ToolMessage,
    ToolSchema,
    UserMessage,
    plain_json,
)
from pinfold.text import BYTES_PER_TOKEN, cap_text, first_line

_IMAGE_TOKENS = 1000
_NOTES = 10
"""How many of the latest lab notes are sent with every request."""
_LINES = 40
"""How many of its latest lines each section of a summary keeps."""
_LINE = 240
_SAID = 6000
"""Characters of the user's earlier messages in a summary."""
_WITHOUT_RESULT = "[Result left out to save space. {}; servers.memory.recall({!r}) shows it.]"


def visible_messages(state: State) -> tuple[Message, ...]:
    """Return the conversation as the model sees it."""
    latest = next((one for one in reversed(state.compactions) if one.summary), None)
    turns = state.turns[latest.past :] if latest else state.turns
    messages = [*chain.from_iterable(turn.messages for turn in turns)]
    if latest and turns:
        first = turns[0].messages
        rest = messages[len(first) :]
        told = replace(first[0], text=f"{latest.summary}\n\n{first[0].text}")
        messages = [told, *_from_call(first[1:], latest.kept), *rest]
    shortened = frozenset(chain.from_iterable(one.shortened for one in state.compactions))
    records = {record.id: record for record in state.records if record.id in shortened}
    return tuple(shorten(message, records) for message in messages)


def _from_call(messages: Sequence[Message], call: ActionId | None) -> Sequence[Message]:
    """Return the messages from the one that made `call` onwards; all if none did."""
    places = (place for place, one in enumerate(messages) if call in calls_of(one))
    return messages[next(places, 0) :]


def calls_of(message: Message) -> tuple[ActionId, ...]:
    return tuple(call.id for call in message.calls) if isinstance(message, AssistantMessage) else ()


def shorten(message: Message, records: Mapping[ActionId, ActionRecord]) -> Message:
    record = records.get(message.id) if isinstance(message, ToolMessage) else None
    if record is None:
        return message
    return replace(message, text=_WITHOUT_RESULT.format(record.line, record.cell or record.id))


def request_of(state: State, tools: tuple[ToolSchema, ...], settings: Mapping[str, Json]) -> Request:
    """Build the request to the model from nothing but the state, the tools and the settings."""
    messages = visible_messages(state)
    if plan := plan_in_words(state.plan, _NOTES):
        # The plan comes last, so that the provider's cache stays valid for everything before it.
        messages = (*messages, UserMessage(text=f"[{plan}]"))
    system = state.opened.prompt if state.opened else ""
    return Request(system=system, messages=messages, tools=tools, settings=settings)


class TokenGauge(Struct):
    """Estimates tokens from bytes, by the ratio that the model's last reply reported."""

    bytes_per_token: float = BYTES_PER_TOKEN
    window: int = 0
    """The model's window in tokens, as learned from a refused request; 0 if unknown."""

    def learn(self, request: Request, tokens: int) -> None:
        if tokens > _pictures(request):
            ratio = _bytes(request) / (tokens - _pictures(request))
            self.bytes_per_token = min(max(ratio, 1.0), 8.0)

    def count(self, request: Request) -> int:
        return round(_bytes(request) / self.bytes_per_token) + _pictures(request)

    def count_message(self, message: Message) -> int:
        return round(_size(message) / self.bytes_per_token)


def _bytes(request: Request) -> int:
    tools = len(plain_json(request.tools).encode()) if request.tools else 0
    return len(request.system.encode("utf-8", "replace")) + tools + sum(map(_size, request.messages))


def _size(message: Message) -> int:
    calls = sum(len(plain_json(call.args).encode()) for call in getattr(message, "calls", ()))
    return len(message.text.encode("utf-8", "replace")) + calls


def _pictures(request: Request) -> int:
    return _IMAGE_TOKENS * sum(len(one.images) for one in request.messages if isinstance(one, UserMessage))


def summarise(state: State, inventory: str, keep: str = "") -> str:
    """Summarise what happened so far, in fixed sections and without a model. `keep`: what the user asked to keep."""
    in_force = [record for record in state.records if record.cell is None or record.cell not in state.undone]
    done = [record.line for record in in_force if record.outcome == "ok"]
    failed = [f"{record.line}: {record.error}" for record in in_force if record.outcome != "ok"]
    answers = [
        f"answered: {first_line(turn.messages[-1].text)}"
        for turn in state.past
        if turn.end == "ended" and turn.messages
    ]
    sections = (
        _section("THE USER SAID", [f'"{said}"' for said in _earlier_messages(state)], longest=_SAID),
        _section("KEEP IN MIND", [keep] if keep else [], longest=_SAID),
        _section("DECIDED", [note.text for note in state.plan.notes if note.kind == "decision"]),
        _section("DONE", [*answers, *done]),
        _section("FAILED (do not repeat)", failed or ["nothing"]),
        _section("NEXT", [_next_step(state)]),
    )
    told = [line for section in sections for line in section]
    return "\n".join(("[Earlier parts of this conversation were left out. In short:", *told, inventory)).rstrip() + "]"


def _section(title: str, lines: Sequence[str], *, longest: int = _LINE) -> list[str]:
    """Return a title and its latest lines; nothing if there are no lines."""
    return [title, *(f"- {cap_text(line, longest)}" for line in lines[-_LINES:])] if lines else []


def _earlier_messages(state: State) -> list[str]:
    """Return the user's messages of earlier turns, verbatim; the older ones are shortened to fit."""
    room, said = _SAID, list[str]()
    for turn in reversed(state.past):
        said.append(cap_text(turn.said, max(room, _LINE)))
        room -= len(turn.said)
    return said[::-1]


def _next_step(state: State) -> str:
    tasks = [task.text for task in state.plan.tasks if task.status in ("doing", "todo")]
    if tasks:
        return f"the next task of the plan: {tasks[0]}"
    if state.turn is None:
        return "wait for the user's next message"
    said = [one.text for one in state.turn.messages if isinstance(one, AssistantMessage) and one.text.strip()]
    going_on = "go on with the user's message below; the variables are as the last cell left them"
    return f"{going_on}. Your last words: {cap_text(said[-1].strip(), _LINE)}" if said else going_on
