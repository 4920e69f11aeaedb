"""Requests of MCP servers during a call: the user's answer, a page to open, a model's reply.

Each becomes an action of that call, judged, approved and recorded like any other. Without a running call it is denied.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from msgspec import Struct, ValidationError

from pinfold.app.models.session_models import CallOptions, SessionModels, SpendingLedger
from pinfold.app.session.egress import ActionContext, current_action
from pinfold.engine import Journal, Performed
from pinfold.events import (
    AssistantMessage,
    CallTool,
    Json,
    Message,
    PinfoldError,
    Reply,
    Request,
    Sent,
    UserMessage,
    convert,
    plain_json,
)
from pinfold.model import destination_of
from pinfold.sandbox import Provider, Spec
from pinfold.text import cap_text
from pinfold.tools.stubs.schema_types import as_list, as_object

SAMPLING = "sampling"
_TRIES = 3


class ServerContext(Struct, frozen=True, kw_only=True):
    spec: Spec
    provider: Provider
    asked: SessionModels
    calling: CallOptions
    log: Journal


class ServerRequests:
    """Person and Sampler of the servers of one session."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._running: dict[str, list[ActionContext]] = {}
        self._wanted: list[dict[str, Json]] = []
        """Sampling requests that wait for a verdict; other actions of that name are not sampling."""

    @contextmanager
    def track_call(self, server: str) -> Generator[None]:
        """Mark the current action as a call of this server, which may send requests meanwhile."""
        what = current_action()
        if what is None:
            yield
            return
        running = self._running.setdefault(server, [])
        running.append(what)
        try:
            yield
        finally:
            running.remove(what)

    def _current_call(self, server: str) -> ActionContext | None:
        running = self._running.get(server)
        return running[-1] if running else None

    async def elicit(self, server: str, message: str, schema: Mapping[str, Json]) -> Mapping[str, Json] | None:
        what, fields = self._current_call(server), fields_of(schema)
        if what is None or fields is None:
            return None
        filled: dict[str, Json] = {}
        if not fields:
            return filled if await _agrees(what, f"{server} asks: {message}") else None
        for field in fields:
            found = await _field(what, f"{server} asks: {message}\n{field.question}", field)
            if found is None:
                return None
            filled |= found
        return filled

    async def open_page(self, server: str, url: str, why: str) -> bool:
        what = self._current_call(server)
        if what is None:
            return False
        return await _agrees(what, f"{server} wants you to open a page in your browser: {why}\n{url}\nWill you?")

    async def sample(
        self, server: str, messages: Sequence[Mapping[str, Json]], *, system: str, max_tokens: int
    ) -> tuple[str, str] | None:
        what = self._current_call(server)
        if what is None or _messages(messages) is None:
            return None
        args: dict[str, Json] = {"messages": list(messages), "system": system, "max_tokens": max_tokens}
        performed = await what.call_part(f"{server}.{SAMPLING}", args, self._wanted)
        match performed.whole:
            case {"text": str(text), "model": str(model)} if performed.outcome == "ok":
                return text, model
            case _:
                return None

    def is_sampling(self, action: CallTool) -> bool:
        """Return True if a server waits for exactly this action."""
        return action.tool.endswith(f".{SAMPLING}") and action.args in self._wanted

    async def run_sampling(self, action: CallTool) -> Performed:
        """Let the session's model answer, without tools and without anything of the session's context."""
        args = action.given
        messages = _messages(cast("Sequence[Mapping[str, Json]]", args["messages"]))
        assert messages is not None
        request = Request(
            system=str(args["system"]), messages=messages, settings={"max_tokens": int(args["max_tokens"])}
        )
        model, access = self._context.asked.model, self._context.calling.access()
        why = "the reply broke off"
        try:
            async for reply in model.stream(request):
                if isinstance(reply, Reply):
                    if not reply.from_cache:
                        SpendingLedger().add(reply.usage, reply.cost)
                    to = destination_of(model.name, access=access)
                    out, back = len(plain_json(request).encode()), len(reply.text.encode("utf-8", "replace"))
                    return Performed(
                        outcome="ok",
                        observation=reply.text,
                        whole={"text": reply.text, "model": model.name},
                        usage=reply.usage,
                        cost=reply.cost,
                        sent=(Sent(to=to, out=out, back=back),) if to else (),
                    )
        except PinfoldError as error:
            why = str(error)
        return Performed(outcome="error", observation=f"no model answered: {why}")


async def _agrees(what: ActionContext, question: str) -> bool:
    performed = await what.ask_user(question, ("yes", "no"))
    return performed.outcome == "ok" and is_yes(performed.observation)


async def _field(what: ActionContext, question: str, field: Field) -> dict[str, Json] | None:
    """Ask for a field. Returns its name and value, nothing if it was left out, None without an answer."""
    wrong = ""
    for _ in range(_TRIES):
        performed = await what.ask_user(f"{question}{wrong}", field.options)
        words = performed.observation
        if performed.outcome != "ok":
            return None
        if not words.strip() and not field.is_required:
            return {}
        try:
            return {field.name: field.value(words)}
        except InvalidAnswer as error:
            wrong = f"\n({error})"
    return None


class _Text(Struct, tag="text", tag_field="type"):
    text: str


class _Said(Struct):
    content: _Text | list[_Text]
    role: Json = "user"


def _messages(given: Sequence[Mapping[str, Json]]) -> tuple[Message, ...] | None:
    """Convert the messages; None if they hold more than text."""
    try:
        said = convert(given, list[_Said])
    except ValidationError:
        return None
    found: list[Message] = []
    for one in said:
        parts = one.content if isinstance(one.content, list) else [one.content]
        text = "\n".join(part.text for part in parts)
        found.append(AssistantMessage(text=text) if one.role == "assistant" else UserMessage(text=text))
    return tuple(found) or None


MOST_FIELDS = 16
_QUESTION_LENGTH = 500
_YES = ("yes", "y", "true")


class InvalidAnswer(Exception):
    """The answer does not fit; says what is expected."""


class Field(Struct, frozen=True, kw_only=True):
    name: str
    question: str
    kind: str
    options: Mapping[str, Json]
    """What the user can choose from, and the value of each choice."""
    is_required: bool

    def value(self, words: str) -> Json:
        """Raises InvalidAnswer."""
        said = words.strip()
        if self.kind == "array":
            return [self._one(part.strip()) for part in said.split(",") if part.strip()]
        return self._one(said)

    def _one(self, said: str) -> Json:
        if self.options:
            found = [value for shown, value in self.options.items() if said in (shown, str(value))]
            if not found:
                raise InvalidAnswer(f"choose one of {', '.join(self.options)}")
            return found[0]
        return _number(said, whole=self.kind == "integer") if self.kind in ("integer", "number") else said


def fields_of(schema: Mapping[str, Json]) -> tuple[Field, ...] | None:
    """Return the fields of a form; None if it cannot be asked as questions."""
    properties, required = schema.get("properties", {}), as_list(schema.get("required"))
    tables = as_object(properties)
    is_readable = isinstance(properties, Mapping) and all(isinstance(one, Mapping) for one in tables.values())
    if not is_readable or len(tables) > MOST_FIELDS:
        return None
    return tuple(
        Field(
            name=name,
            question=_question_for(name, about),
            kind=str(about.get("type", "string")),
            options=_options_of(about),
            is_required=name in required,
        )
        for name, about in tables.items()
    )


def _question_for(name: str, about: Mapping[str, Json]) -> str:
    words = [str(about[key]) for key in ("title", "description") if about.get(key)]
    if "default" in about:
        words.append(f"(else {about['default']!r})")
    return cap_text(": ".join([name, *words]), _QUESTION_LENGTH)


def _options_of(about: Mapping[str, Json]) -> dict[str, Json]:
    if about.get("type") == "boolean":
        return {"yes": True, "no": False}
    table = as_object(about.get("items")) if about.get("type") == "array" else about
    for key in ("oneOf", "anyOf"):
        if isinstance(table.get(key), list):
            choices = [one for one in map(as_object, as_list(table[key])) if "const" in one]
            return {str(one.get("title", one["const"])): one["const"] for one in choices}
    values, names = as_list(table.get("enum")), table.get("enumNames")
    shown = as_list(names) if isinstance(names, list) else values
    return {str(name): value for name, value in zip(shown, values, strict=False)}


def _number(said: str, *, whole: bool) -> int | float:
    try:
        number = int(said) if whole else float(said)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidAnswer("enter a whole number" if whole else "enter a number")
    return number


def is_yes(words: str) -> bool:
    return words.strip().lower() in _YES
