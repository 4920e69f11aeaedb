"""How a server of the bench offers its methods as tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_type_hints

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


def tools_in(name: str, server: object) -> list[Tool[..., Any]]:
    """The marked methods, in the order they are written, named as the tools of MCP servers are."""
    found: list[Tool[..., Any]] = []
    for attribute in vars(type(server)):
        method = getattr(server, attribute)
        if effect := getattr(method, _EFFECT, None):
            made = tool(effect=effect)(method)
            key = (type(server), attribute)
            if key not in _declared:
                _declared[key] = _schema(made)
            full = f"{name}.{made.name}"
            parameters, returns = _declared[key], results().get(full)
            found.append(replace(made, name=full, server=name, parameters=parameters, returns=returns))
    return found


_declared: dict[tuple[type, str], Mapping[str, Json]] = {}


def _schema(made: Tool[..., Any]) -> Mapping[str, Json]:
    """The schema as a server made with the official Python SDK declares it, titles and nulls included."""
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
