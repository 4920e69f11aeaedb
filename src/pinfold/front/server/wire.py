"""Shared by the routes of the OpenAI protocols: finds the session that a request means, and starts its turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, cast, get_args
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from pinfold import events
from pinfold.app import Link, NoSuchSession
from pinfold.app.clients import (
    Called,
    CallerTurns,
    Ended,
    PlainModels,
    Prompt,
    TurnPlace,
    TurnRun,
    describe_form,
    loose_picture,
    open_records,
    store_picture,
    write_file,
)
from pinfold.app.session import CallerTerms
from pinfold.events import Json, Mode, SessionId
from pinfold.events import Request as ModelRequest
from pinfold.front.server.endpoints import BadInput, UnknownName
from pinfold.front.server.gate import CLIENT
from pinfold.front.server.wire_input import AttachedFile, WireInput, WireMessage, digest_messages
from pinfold.text import cap_text

if TYPE_CHECKING:
    from pinfold.app.clients import ServedSessions
    from pinfold.events import BlobId

AGENT = "pinfold"
SESSION = "x-pinfold-session"
KEY_HEADERS = (SESSION, "x-openwebui-chat-id", "x-librechat-conversation-id")
"""Headers that name a conversation, by precedence."""
_EARLIER = 40_000
"""Most characters of an earlier conversation that a new session gets."""
_WHOLE = 8000
"""Largest attached text, in bytes, that is part of the message."""
_ATTACHMENTS = "attachments"
_SETTINGS = ("temperature", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty")


class StoredFile(Struct, frozen=True, kw_only=True):
    id: str
    filename: str
    bytes: int
    created_at: int
    purpose: str
    object: str = "file"
    status: str = "processed"


class Caller(Struct, frozen=True, kw_only=True):
    """The client that sent a request, and its conversation."""

    key: str = ""
    """Name of the conversation, if the request has one."""
    session: str = ""
    """Id of the session, if the request names it."""
    client: str = ""


class Wire:
    """State that the routes share; there is one for each server."""

    def __init__(self, sessions: ServedSessions) -> None:
        self.sessions = sessions
        self.turns = CallerTurns(sessions, on_call=lambda call, place: self.records.put("call", call, place))
        self.models = PlainModels()
        self.records = open_records()
        self._opening: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def is_agent(self, model: str) -> bool:
        """True if the name means the agent, False for a plain model. Raises BadInput if it is unknown."""
        if mode_of(model) is not None:
            return True
        if not await anyio.to_thread.run_sync(self.models.has, model):
            raise UnknownName(f"no model is called {model!r}; GET /v1/models lists them", "model")
        return False

    async def begin(
        self, given: WireInput, terms: CallerTerms, *, model: str, caller: Caller, after: TurnPlace | None = None
    ) -> TurnRun:
        """Start the turn that a request means. `after`: the turn that it continues."""
        if results := given.results:
            place = self.records.get("call", next(iter(results)), TurnPlace)
            if place is None:
                raise BadInput(f"no call {next(iter(results))} waits for a result")
            link = await self.sessions.link(place.session)
            return await self.turns.start(link, Prompt(results=results, at=place), terms)
        # Two concurrent first requests of a conversation must not begin two sessions.
        async with self._opening.setdefault(caller.key or events.new_turn_id(), anyio.Lock()):
            link, is_new = await self._find(given, model, caller, after)
        say = await self._say(link, given, terms, with_past=is_new)
        return await self.turns.start(link, Prompt(say=say), terms)

    async def _find(self, given: WireInput, model: str, caller: Caller, after: TurnPlace | None) -> tuple[Link, bool]:
        """Return the session, and whether it is new."""
        key, past = caller.key, after
        known = caller.session or (self.records.get("key", key, str) if key else None)
        if given.before and not (after or caller.session):
            past = self.records.get("prefix", digest_messages(given.before), TurnPlace)
            past = past if past and past.session else None
        link = None
        try:
            if past and (after or not known or past.session == known):
                link = await self.turns.branch(past)
            elif known:
                link = await self.sessions.link(known)
        except NoSuchSession:
            if caller.session or after:
                raise
        mode = mode_of(model) or None
        is_new = link is None
        if link is None:
            link = await self.sessions.create(mode=mode, client=caller.client)
        elif mode and (await link.status()).mode != mode:
            await link.submit(events.Configure(mode=mode))
        if key:
            self.records.put("key", key, link.session)
        return link, is_new

    async def _say(self, link: Link, given: WireInput, terms: CallerTerms, *, with_past: bool) -> events.Say:
        _, folder = await self.sessions.find(link.session)
        pictures = [data for one in given.new for data in one.pictures]
        images = tuple([await anyio.to_thread.run_sync(store_picture, link, folder, data) for data in pictures])
        words = [given.text]
        if with_past and given.before:
            words.insert(0, _quote_earlier(given.before))
        for file in self.files_in(given.new):
            path = f"{_ATTACHMENTS}/{PurePosixPath(file.name).name or 'attachment'}"
            workspace = Path((await link.status()).workspace)
            await anyio.to_thread.run_sync(write_file, workspace, path, BytesIO(file.data))
            words.append(_describe_file(file, path))
        if terms.answer_schema is not None:
            words.append(describe_form(terms.answer_schema))
        return events.Say(turn=events.new_turn_id(), text="\n\n".join(filter(None, words)), images=images)

    def files_in(self, messages: Iterable[WireMessage]) -> list[AttachedFile]:
        """Return the attached files, including those uploaded earlier. Raises BadInput."""
        found: list[AttachedFile] = []
        for file in (file for one in messages for file in one.files):
            if file.file_id:
                stored = self.records.get("file", file.file_id, StoredFile)
                if stored is None:
                    raise BadInput(f"no file is called {file.file_id!r}")
                data = self.records.content("file", file.file_id) or b""
                file = replace(file, name=stored.filename, data=data)  # noqa: PLW2901
            found.append(file)
        return found

    def remember(self, given: WireInput, place: TurnPlace, calls_made: Iterable[Called], text: str) -> None:
        """Record the conversation, so that its next request finds the session.

        Two sessions with the same conversation cannot be told apart: without a key, the next request begins a new one.
        """
        calls = tuple((call.id, call.name, call.arguments) for call in calls_made)
        digest = digest_messages([*given.messages, WireMessage(role="assistant", text=text, calls=calls)])
        known = self.records.get("prefix", digest, TurnPlace)
        if known and known.session != place.session:
            source = self.sessions.store.summary_of(SessionId(place.session)).source
            place = place if source and known.session == source else replace(place, session="")
        self.records.put("prefix", digest, place)

    def plain_request(self, given: WireInput, terms: CallerTerms, body: Mapping[str, Json]) -> ModelRequest:
        """Build the request to a model without a session."""
        blobs: dict[BlobId, bytes] = {}
        messages: list[events.Message] = []
        for one in given.messages:
            files = [_describe_file(file, file.name) for file in self.files_in([one])]
            text = "\n\n".join(filter(None, (one.text, *files)))
            match one.role:
                case "assistant":
                    messages.append(events.AssistantMessage(text=text, calls=tuple(map(_call, one.calls))))
                case "tool":
                    messages.append(events.ToolMessage(id=events.ActionId(one.call), text=text))
                case _:
                    images = tuple(map(loose_picture, one.pictures))
                    blobs |= {image.blob: data for image, data in zip(images, one.pictures, strict=True)}
                    messages.append(events.UserMessage(text=text, images=images))
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens")
        settings = {name: body[name] for name in _SETTINGS if body.get(name) is not None}
        form = describe_form(terms.answer_schema) if terms.answer_schema is not None else ""
        return ModelRequest(
            system="\n\n".join(filter(None, (terms.instructions, form))),
            messages=tuple(messages),
            tools=terms.tools,
            settings={**settings, **({"max_tokens": limit} if limit else {})},
            blobs=blobs,
        )


def wire_of(request: Request) -> Wire:
    state = request.app.state
    if not hasattr(state, "wire"):
        state.wire = Wire(state.sessions)
    return state.wire


def mode_of(model: str) -> Mode | Literal[""] | None:
    """Return the mode that a name of the agent implies, empty for the default; None for other names."""
    if model == AGENT:
        return ""
    mode = model.removeprefix(f"{AGENT}-")
    return cast("Mode", mode) if mode != model and mode in get_args(Mode) else None


def caller_of(request: Request, conversation: Json = None) -> Caller:
    """Return the client and conversation of a request; `conversation` counts if no header names one."""
    client = request.scope.get(CLIENT, "")
    for name in KEY_HEADERS:
        if value := request.headers.get(name):
            if name == SESSION and value.startswith("s_"):
                return Caller(session=value, client=client)
            return Caller(key=f"{name}:{value}", client=client)
    match conversation:
        case str(value) | {"id": str(value)} if value:
            return Caller(key=f"conversation:{value}", client=client)
        case _:
            return Caller(client=client)


def failed_status(end: Ended) -> int:
    return 409 if end.status == "cancelled" else 503 if end.temporary else 500


def _quote_earlier(messages: Iterable[WireMessage]) -> str:
    text = "\n\n".join(f"{one.role}: {one.text}" for one in messages if one.text)
    return f"[The conversation so far, as the client has it:\n{cap_text(text, _EARLIER)}]"


def _describe_file(file: AttachedFile, path: str) -> str:
    head = f"[Attached: {path}, {len(file.data):,} bytes"
    try:
        text = file.data.decode("utf-8") if len(file.data) <= _WHOLE and b"\0" not in file.data else ""
    except UnicodeDecodeError:
        text = ""
    return f"{head}:]\n{text}" if text else f"{head}. Read it with code.]"


def _call(call: tuple[str, str, str]) -> events.Call:
    id_, name, arguments = call
    return events.Call(
        id=events.ActionId(id_), tool=name, args=events.decode_json(arguments.encode() or b"{}", dict[str, Json])
    )
