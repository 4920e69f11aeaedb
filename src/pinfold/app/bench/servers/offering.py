"""How a server of the bench offers its methods as tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_type_hints

from msgspec.structs import replace

from pinfold.app.bench.servers.declared import results
from pinfold.events import Effect, Json
from pinfold.tools import BadCall, Tool, tool

Method = TypeVar("Method", bound=Callable[..., Any])
Record = dict[str, Any]
_EFFECT = "__pinfold_effect__"


def reads(method: Method) -> Method:
    return _marked(method, "pure")


def changes(method: Method) -> Method:
    return _marked(method, "once")


def _marked(method: Method, effect: Effect) -> Method:
    setattr(method, _EFFECT, effect)
    return method


def tools_in(name: str, server: object, always: str) -> list[Tool[..., Any]]:
    """The marked methods, in the order they are written, named as the tools of MCP servers are.

    `always` is what the description of each of them ends with.
    """
    kind = type(server)
    marked = [attribute for attribute in vars(kind) if hasattr(getattr(kind, attribute), _EFFECT)]
    return [replace(_tool(name, kind, one, always), function=getattr(server, one)) for one in marked]


@cache
def _tool(name: str, kind: type, attribute: str, always: str) -> Tool[..., Any]:
    method = getattr(kind(), attribute)
    made = tool(effect=getattr(method, _EFFECT))(method)
    full = f"{name}.{made.name}"
    parameters = _schema(made)
    return replace(
        made,
        name=full,
        server=name,
        description=f"{made.description} {always}".rstrip(),
        parameters=_as_zod_has_it(parameters) if name in _TYPESCRIPT else parameters,
        returns=results().get(full),
        takes=made.arguments,
    )


_TYPESCRIPT = ("crm", "drive", "issues", "messages", "monitor", "posts", "travel", "vehicle", "wiki")
"""Servers that declare their tools in the manner of the official TypeScript SDK, as half of the real ones do."""


def _as_zod_has_it(schema: Mapping[str, Json]) -> Mapping[str, Json]:
    """Without titles and nulls, but with the draft it follows."""
    properties: dict[str, Json] = {}
    for name, one in schema["properties"].items() if "properties" in schema else ():
        kept = {key: value for key, value in one.items() if key not in ("title", "anyOf")}
        if "anyOf" in one:
            kept = {**one["anyOf"][0], **{key: value for key, value in kept.items() if key != "default"}}
        properties[name] = kept
    required = {"required": schema["required"]} if "required" in schema else {}
    draft = "http://json-schema.org/draft-07/schema#"
    return {
        "type": "object",
        "properties": properties,
        **required,
        "additionalProperties": False,
        "$schema": draft,
    }


def _schema(made: Tool[..., Any]) -> Mapping[str, Json]:
    """The schema as a server made with the official Python SDK declares it: with titles and nulls."""
    from pydantic import Field, create_model

    hints = get_type_hints(made.function)
    fields: dict[str, Any] = {}
    for argument in made.arguments:
        default = ... if argument.is_required else argument.default
        fields[argument.name] = (hints[argument.name], Field(default, description=argument.description))
    return create_model(f"{made.name}Arguments", **fields).model_json_schema()


def one_of(records: Iterable[Record], key: str, value: object, what: str) -> Record:
    """The record, or words that say there is none."""
    for record in records:
        if record[key] == value:
            return record
    raise BadCall(f"there is no {what} with {key} {value!r}")


def paged(records: Sequence[Record], page: int, per_page: int, key: str) -> Record:
    first = (page - 1) * per_page
    return {
        key: list(records[first : first + per_page]),
        "page": page,
        "per_page": per_page,
        "total_count": len(records),
        "has_more": first + per_page < len(records),
    }


def without(record: Mapping[str, Any], *names: str) -> Record:
    return {key: value for key, value in record.items() if key not in names}
