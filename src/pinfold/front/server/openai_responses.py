"""`/v1/responses`: turns as responses that can be streamed, fetched again, continued, cancelled and deleted."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from pinfold.app.clients import Ended, Piece, TurnPlace
from pinfold.app.session import CallerTerms
from pinfold.events import Json
from pinfold.front.server.endpoints import AnyEndpoint, BadInput, Call, Endpoint, Nothing, UnknownName, json_response
from pinfold.front.server.event_stream import EventStream, sse_data
from pinfold.front.server.openai_types import Deleted, ResponseRecord, ResponseRequest, ResponseUsage
from pinfold.front.server.response_items import ResponseItems
from pinfold.front.server.wire import AGENT, SESSION, Wire, caller_of, wire_of
from pinfold.front.server.wire_input import WireInput, as_object, read_response_input, read_terms

_STATUS = {"waiting": "completed"}
_ENDS = {"failed": "response.failed", "incomplete": "response.incomplete", "cancelled": "response.incomplete"}
_RUNNING = ("queued", "in_progress")


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A response without its output, which is in the log of its session."""

    id: str
    created_at: int
    echo: dict[str, Json]
    """The request's parameters, as a response repeats them."""
    place: TurnPlace | None = None
    body: dict[str, Json] | None = None
    """The whole response, if it has no session."""

    @property
    def only_answer(self) -> bool:
        must_call = self.echo["tool_choice"] not in ("auto", "none")
        return must_call or as_object(self.echo["text"]).get("format") != {"type": "text"}

    def build(self, items: list[dict[str, Json]], end: Ended | None) -> dict[str, Json]:
        """Return the response so far, or as it ended."""
        status = _STATUS.get(end.status, end.status) if end else "in_progress"
        failed = {"code": "server_error", "message": end.error} if end and status == "failed" else None
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self.echo,
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": end.at if end and status == "completed" else None,
            "status": status,
            "error": failed,
            "incomplete_details": cut,
            "output": items,
            "usage": _usage(end) if end else None,
        }


def _echo(body: Mapping[str, Json], terms: CallerTerms, model: str) -> dict[str, Json]:
    """Return the request's parameters that a response repeats, with OpenAI's defaults for those that are not given."""
    form = as_object(body.get("text")).get("format") or {"type": "text"}
    if form.get("type") == "json_schema":
        form = {"description": None, "strict": True, "name": "answer", **form}
    conversation = body.get("conversation")
    tools = [
        {
            "type": "function",
            "name": one.name,
            "description": one.description,
            "parameters": one.parameters,
            "strict": None,
        }
        for one in terms.tools
    ]
    usual: dict[str, Json] = {
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "safety_identifier": None,
        "temperature": 1.0,
        "tool_choice": "auto",
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "truncation": "disabled",
        "store": True,
        "background": False,
    }
    given = {name: body[name] for name in usual if body.get(name) is not None}
    return {
        **usual,
        **given,
        "model": model,
        "tools": tools,
        "text": {"format": form},
        "reasoning": {"effort": None, "summary": None, **as_object(body.get("reasoning"))},
        "service_tier": "default",
        **(
            {"conversation": {"id": conversation} if isinstance(conversation, str) else conversation}
            if conversation
            else {}
        ),
    }


class _Work(Struct, frozen=True):
    """A response in progress."""

    wire: Wire
    given: WireInput
    stored: StoredResponse
    pieces: AsyncIterator[Piece]

    @property
    def is_kept(self) -> bool:
        return bool(self.stored.echo["store"])

    def keep(self) -> None:
        if self.is_kept:
            self.wire.records.put("response", self.stored.id, self.stored)

    def finish(self, items: ResponseItems) -> dict[str, Json]:
        end, place = items.end, self.stored.place
        body = self.stored.build(items.output, end)
        if place and end and end.status in ("completed", "waiting"):
            self.wire.remember(self.given, place, items.calls, items.text)
        elif place is None and self.is_kept:
            self.wire.records.put("response", self.stored.id, replace(self.stored, body=body))
        return body

    def headers(self) -> dict[str, str]:
        return {SESSION: self.stored.place.session} if self.stored.place else {}


async def create_response(call: Call[Nothing, ResponseRequest]) -> Response:
    body, work = call.body, await _begin(call)
    if body.get("background") and not body.get("stream"):
        return json_response(work.stored.build([], None), headers=work.headers())
    if body.get("stream"):
        return EventStream(_stream(work), work.headers())
    items = ResponseItems(work.stored.id)
    async for piece in work.pieces:
        items.take(piece)
    return json_response(work.finish(items), headers=work.headers())


async def _begin(call: Call[Nothing, ResponseRequest]) -> _Work:
    body, wire = call.body, wire_of(call.request)
    model, previous = body.get("model") or AGENT, body.get("previous_response_id")
    given = read_response_input(body)
    terms = read_terms(body, given.instructions)
    is_agent = await wire.is_agent(model)
    after = _find(wire, previous).place if previous else None
    if previous and (after is None or not is_agent):
        raise BadInput(f"only responses of {AGENT} can be continued", "previous_response_id")
    if body.get("background") and (not is_agent or body.get("store") is False):
        raise BadInput(f"background needs the model {AGENT} and store: true", "background")
    stored = StoredResponse(id=f"resp_{token_hex(12)}", created_at=int(time.time()), echo=_echo(body, terms, model))
    if not is_agent:
        return _Work(wire, given, stored, wire.models.ask(model, wire.plain_request(given, terms, body), terms))
    run = await wire.begin(
        given, terms, model=model, caller=caller_of(call.request, body.get("conversation")), after=after
    )
    work = _Work(wire, given, replace(stored, place=run.place), run.follow())
    work.keep()
    return work


async def _stream(work: _Work) -> AsyncGenerator[str]:
    number = 0

    def line(event: Mapping[str, Json]) -> str:
        nonlocal number
        data = sse_data({**event, "sequence_number": number})
        number += 1
        return f"event: {event['type']}\n{data}"

    begun = work.stored.build([], None)
    yield line({"type": "response.created", "response": begun})
    yield line({"type": "response.in_progress", "response": begun})
    items = ResponseItems(work.stored.id)
    async for piece in work.pieces:
        for event in items.add(piece):
            yield line(event)
    body = work.finish(items)
    yield line({"type": _ENDS.get(str(body["status"]), "response.completed"), "response": body})
    yield "data: [DONE]\n\n"


async def get_response(call: Call[Nothing, Nothing]) -> dict[str, Json]:
    wire = wire_of(call.request)
    return await _read_again(wire, _find(wire, call.request.path_params["response"]))


async def _read_again(wire: Wire, stored: StoredResponse) -> dict[str, Json]:
    if stored.place is None:
        return stored.body or stored.build([], None)
    items = ResponseItems(stored.id)
    async for piece in wire.turns.read_again(stored.place, only_answer=stored.only_answer):
        items.take(piece)
    return stored.build(items.output, items.end)


async def delete_response(call: Call[Nothing, Nothing]) -> Deleted:
    wire = wire_of(call.request)
    stored = _find(wire, call.request.path_params["response"])
    wire.records.delete("response", stored.id)
    return {"id": stored.id, "object": "response", "deleted": True}


async def cancel_response(call: Call[Nothing, Nothing]) -> dict[str, Json]:
    """Cancel a response that is still running, and return it."""
    wire = wire_of(call.request)
    stored = _find(wire, call.request.path_params["response"])
    body = await _read_again(wire, stored)
    if body["status"] in _RUNNING and stored.place:
        await wire.turns.cancel(stored.place)
        body = await _read_again(wire, stored)
    return body


def _find(wire: Wire, id_: str) -> StoredResponse:
    stored = wire.records.get("response", id_, StoredResponse)
    if stored is None:
        raise UnknownName(f"no response is called {id_!r}; it may have been deleted", "response_id")
    return stored


def _usage(end: Ended) -> ResponseUsage:
    used = end.usage
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.total,
    }


_ONE = "/v1/responses/{response}"
ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/responses",
        "A turn as a response",
        create_response,
        body=ResponseRequest,
        answer=ResponseRecord,
        media="text/event-stream",
    ),
    Endpoint("GET", _ONE, "Get a response", get_response, answer=ResponseRecord),
    Endpoint("DELETE", _ONE, "Delete a response", delete_response, answer=Deleted),
    Endpoint("POST", f"{_ONE}/cancel", "Cancel a response", cancel_response, answer=ResponseRecord),
)
