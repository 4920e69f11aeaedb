"""`/agui`: a turn as a run of the Agent User Interaction Protocol (AG-UI 1.0), as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import cast

from starlette.responses import Response

from pinfold.app.clients import Called, Ended, Piece, Said, Thinking, TurnRun
from pinfold.events import Json
from pinfold.front.server.endpoints import AnyEndpoint, Call, Endpoint, Nothing
from pinfold.front.server.event_stream import EventStream, sse_data
from pinfold.front.server.openai_types import RunRequest
from pinfold.front.server.wire import AGENT, SESSION, Wire, caller_of, wire_of
from pinfold.front.server.wire_input import WireInput, as_object, read_chat, read_terms


async def run_agent(call: Call[Nothing, RunRequest]) -> Response:
    body, wire = call.body, wire_of(call.request)
    thread, run_id = body["threadId"], body["runId"]
    messages = [_chat_message(one) for one in body["messages"]]
    about = [f"{one.get('description')}: {one.get('value')}" for one in body.get("context") or ()]
    tools = [{"type": "function", "function": one} for one in body.get("tools") or ()]
    given = read_chat({"messages": messages})
    terms = read_terms({"tools": tools}, "\n\n".join(filter(None, (given.instructions, *about))))
    run = await wire.begin(given, terms, model=AGENT, caller=caller_of(call.request, f"agui:{thread}"))
    return EventStream(_stream(wire, given, run, thread, run_id), {SESSION: run.place.session})


async def _stream(wire: Wire, given: WireInput, run: TurnRun, thread: str, run_id: str) -> AsyncGenerator[str]:
    ids = {"threadId": thread, "runId": run_id}
    events = _RunEvents(run_id)
    yield sse_data({"type": "RUN_STARTED", **ids})
    yield sse_data({"type": "STATE_SNAPSHOT", "snapshot": {"session": run.place.session}})
    async for piece in run.follow():
        for event in events.add(piece):
            yield sse_data(event)
        if isinstance(piece, Ended):
            if piece.status in ("completed", "waiting"):
                wire.remember(given, run.place, events.calls, events.text)
            yield sse_data(_end(piece, events.calls, ids))


def _end(end: Ended, calls: list[Called], ids: dict[str, Json]) -> dict[str, Json]:
    match end.status:
        case "failed" | "incomplete":
            return {"type": "RUN_ERROR", "message": end.error or "the turn failed"}
        case "cancelled":
            outcome: dict[str, Json] = {"type": "cancelled"}
        case _:
            outcome = {"type": "success", **({"pendingToolCallIds": [call.id for call in calls]} if calls else {})}
    return {"type": "RUN_FINISHED", **ids, "outcome": outcome}


class _RunEvents:
    """Builds the events of a run. Each message and each reasoning is closed before the next begins."""

    def __init__(self, run: str) -> None:
        self.text = ""
        self.calls: list[Called] = []
        self._run = run
        self._count = 0
        self._open: tuple[str, int] | None = None
        """The open part: `TEXT` or `REASONING`, and the number of its message."""

    @property
    def _id(self) -> str:
        return f"{self._run}-{self._count}"

    def add(self, piece: Piece) -> Iterator[dict[str, Json]]:
        match piece:
            case Said(text=text, message=message):
                yield from self._switch(("TEXT", message))
                self.text += text
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._id, "delta": text}
            case Thinking(text=text):
                yield from self._switch(("REASONING", 0))
                yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._id, "delta": text}
            case Called() as call:
                yield from self._switch(None)
                self.calls.append(call)
                yield {"type": "TOOL_CALL_START", "toolCallId": call.id, "toolCallName": call.name}
                yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": call.arguments}
                yield {"type": "TOOL_CALL_END", "toolCallId": call.id}
            case Ended():
                yield from self._switch(None)

    def _switch(self, to: tuple[str, int] | None) -> Iterator[dict[str, Json]]:
        if to == self._open:
            return
        if self._open:
            yield {"type": f"{self._open[0]}_MESSAGE_END", "messageId": self._id}
            if self._open[0] == "REASONING":
                yield {"type": "REASONING_END", "messageId": self._id}
        self._open = to
        if to:
            self._count += 1
            self.text += "\n\n" if to[0] == "TEXT" and self.text else ""
            if to[0] == "REASONING":
                yield {"type": "REASONING_START", "messageId": self._id}
            role = "assistant" if to[0] == "TEXT" else "reasoning"
            yield {"type": f"{to[0]}_MESSAGE_START", "messageId": self._id, "role": role}


def _chat_message(given: dict[str, Json]) -> dict[str, Json]:
    """Convert a message of AG-UI to the format of chat completions."""
    content: Json = given.get("content")
    if isinstance(content, list):
        content = [_part(as_object(part)) for part in cast("list[Json]", content)]
    return {
        "role": given.get("role"),
        "content": content or "",
        "tool_call_id": given.get("toolCallId"),
        "tool_calls": given.get("toolCalls") or (),
    }


def _part(part: dict[str, Json]) -> dict[str, Json]:
    source = as_object(part.get("source"))
    if part.get("type") == "image":
        value = str(source.get("value", ""))
        url = f"data:{source.get('mimeType')};base64,{value}" if source.get("type") == "data" else value
        return {"type": "image_url", "image_url": {"url": url}}
    return part


ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint("POST", "/agui", "A run of AG-UI", run_agent, body=RunRequest, media="text/event-stream"),
)
