"""A server's tools as tools of ours: the user's agreement, and nothing the server says, decides what they may be."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, cast

from pinfold.events import Effect, Json, Reach, Sent
from pinfold.net import BadDestination, parse_url
from pinfold.tools.errors import BadCall, ToolFailed
from pinfold.tools.mcp.limits import Limits
from pinfold.tools.mcp.manifest import Entry, Manifest
from pinfold.tools.mcp.relays import relay_now
from pinfold.tools.mcp.schema_check import Shape, arguments_of
from pinfold.tools.mcp.server_config import is_loopback
from pinfold.tools.mcp.server_lifecycle import Life
from pinfold.tools.mcp.spec import ServerSpec
from pinfold.tools.results import Result
from pinfold.tools.tool import Tool

_NOTHING: Mapping[str, Json] = {"type": "object", "properties": {}, "additionalProperties": False}
_LIST: Mapping[str, Json] = {"type": "array", "items": {"type": "object"}}


@dataclass(frozen=True)
class _Extra:
    """What the protocol offers besides tools."""

    description: str
    parameters: Mapping[str, Json] = field(default_factory=lambda: _NOTHING)
    returns: Mapping[str, Json] | None = None


_EXTRAS: Mapping[str, _Extra] = {
    "list_resources": _Extra("List what the server has to read, each with its `uri`.", returns=_LIST),
    "list_resource_templates": _Extra(
        "List patterns of URIs that the server can read once they are filled in.", returns=_LIST
    ),
    "read_resource": _Extra(
        "Read a resource of the server by its `uri`: text or bytes.",
        parameters={
            "type": "object",
            "properties": {"uri": {"type": "string"}},
            "required": ["uri"],
            "additionalProperties": False,
        },
    ),
    "list_prompts": _Extra("List the prompts that the server has, with their arguments.", returns=_LIST),
    "get_prompt": _Extra(
        "Get a prompt of the server with its arguments filled in.",
        parameters={
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    ),
}


def offered_tools(life: Life, pinned: Manifest, limits: Limits, *, is_trusted: bool) -> tuple[Tool[..., Any], ...]:
    """What was agreed to and is still there, as it was agreed to; what differs now is held."""
    made: list[Tool[..., Any]] = []
    held = life.difference()
    for name, entry in sorted(pinned.entries.items()):
        now = entry if life.now is None else life.now.entries.get(name)
        if now is None or (entry.extra and name not in _EXTRAS):
            continue
        change = held.of(name)
        made.append(_tool(life, entry, now.digest, limits, is_trusted=is_trusted, held=change.diff if change else ""))
    return tuple(made)


def _tool(life: Life, entry: Entry, agreed: str, limits: Limits, *, is_trusted: bool, held: str) -> Tool[..., Any]:
    spec = life.spec
    extra = _EXTRAS[entry.name] if entry.extra else None
    parameters = extra.parameters if extra else entry.table("inputSchema") or _NOTHING
    returns = extra.returns if extra else entry.table("outputSchema")
    title = f"{spec.name}.{entry.name}"
    effect = _effect(entry, is_trusted=is_trusted and not held)
    call = _Extras(life, entry.name, agreed).call if extra else _Call(life, entry, agreed, returns).call
    return Tool(
        function=call,
        name=title,
        description=extra.description if extra else entry.text("description") or entry.text("title"),
        effect=effect,
        timeout_s=limits.total_s(spec.timeout_s),
        parallel_safe=effect == "pure",
        parameters=parameters,
        reach=_reach(spec, entry, is_trusted=is_trusted and not held),
        trust="untrusted",
        takes=arguments_of(parameters),
        server=spec.name,
        returns=returns,
        validate=_Checked(title, parameters),
        held=held,
    )


def _effect(entry: Entry, *, is_trusted: bool) -> Effect:
    if not is_trusted:
        return "once"
    said = entry.table("annotations") or {}
    if entry.extra or said.get("readOnlyHint") is True:
        return "pure"
    return "keyed" if said.get("idempotentHint") is True else "once"


def _reach(spec: ServerSpec, entry: Entry, *, is_trusted: bool) -> Reach:
    """A program is shut into what its user says it needs, or says itself where it is trusted; somebody else's machine is not."""
    if spec.transport == "stdio" and spec.reach:
        return spec.reach
    said = entry.table("annotations") or {}
    closed = said.get("readOnlyHint") is True and said.get("openWorldHint") is False
    if spec.transport == "stdio" and is_trusted and closed:
        return "nothing"
    return "network" if spec.reach == "network" else "outside"


class _Checked:
    """Arguments as they may be sent, or ToolFailed in one line. A schema is read when it is first needed."""

    def __init__(self, title: str, schema: Mapping[str, Json]) -> None:
        self._title = title
        self._schema = schema

    @cached_property
    def _shape(self) -> Shape:
        return Shape(self._schema)

    def __call__(self, args: Json) -> Mapping[str, Any]:
        if not isinstance(args, Mapping):
            raise ToolFailed(f"wrong arguments for {self._title}: they must be an object")
        plain = cast("dict[str, Json]", _sendable(dict(cast("Mapping[str, Json]", args))))
        try:
            json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError):
            raise ToolFailed(
                f"wrong arguments for {self._title}: they hold what JSON cannot, such as NaN or half a character"
            ) from None
        faults = self._shape.faults(plain)
        if faults and (fewer := self._without_nulls(plain)) != plain:
            plain, faults = fewer, self._shape.faults(fewer)
        if faults:
            raise ToolFailed(f"wrong arguments for {self._title}: {'; '.join(faults)}")
        return plain

    def _without_nulls(self, plain: dict[str, Json]) -> dict[str, Json]:
        """What may be left out and is null is left out: models write it so."""
        required: Any = self._schema.get("required")
        needed = cast("list[Any]", required) if isinstance(required, list) else []
        return {key: value for key, value in plain.items() if value is not None or key in needed}


def _sendable(value: Json) -> Json:
    """Bytes as base64, which is how JSON has them."""
    match value:
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case dict():
            return {key: _sendable(item) for key, item in cast("dict[str, Json]", value).items()}
        case list() | tuple():
            return [_sendable(item) for item in cast("list[Json]", value)]
        case _:
            return value


class _Call:
    def __init__(self, life: Life, entry: Entry, agreed: str, returns: Mapping[str, Json] | None) -> None:
        self._life = life
        self._name = entry.name
        self._agreed = agreed
        self._shape = Shape(returns) if returns is not None else None

    async def call(self, **arguments: Json) -> Result:
        out = len(json.dumps(arguments, ensure_ascii=False).encode())
        if relay := relay_now():
            return _with_sent(self._life.spec, await relay(self._agreed), out)
        result = await self._life.call(self._name, arguments, self._agreed)
        from pinfold.tools.mcp.values import of_call

        try:
            made = of_call(result, self._shape)
        except BadCall as error:
            raise BadCall(str(error), sent=sent_to(self._life.spec, out, len(str(error)))) from None
        return _with_sent(self._life.spec, made, out)


class _Extras:
    def __init__(self, life: Life, name: str, agreed: str) -> None:
        self._life = life
        self._name = name
        self._agreed = agreed

    async def call(self, **arguments: Json) -> Result:
        if relay := relay_now():
            return _with_sent(self._life.spec, await relay(self._agreed), len(str(arguments)))
        from pinfold.tools.mcp import values

        ask = partial(self._life.ask, self._name, self._agreed)
        match self._name:
            case "read_resource":
                made = values.of_resource(await ask(lambda one: one.read_resource(arguments["uri"])))
            case "get_prompt":
                filled = cast("Mapping[str, str]", arguments.get("arguments") or {})
                made = values.of_prompt(await ask(lambda one: one.get_prompt(arguments["name"], filled)))
            case _:
                made = values.of_listing(await ask(lambda one: one.list_all(self._name)))
        return _with_sent(self._life.spec, made, len(str(arguments)))


def _with_sent(spec: ServerSpec, result: Result, out: int) -> Result:
    sent = sent_to(spec, out, len(result.text.encode("utf-8", "replace")))
    return Result(text=result.text, value=result.value, untrusted=True, sent=sent)


def sent_to(spec: ServerSpec, out: int, back: int) -> tuple[Sent, ...]:
    """What a server on another machine got: the arguments, and what they were answered with."""
    if spec.transport == "stdio":
        return ()
    try:
        url = parse_url(spec.url)
    except BadDestination:
        return ()
    return () if is_loopback(url) else (Sent(to=str(url.destination), out=out, back=back),)
