"""The parameters of a declared tool: as JSON schema, as a list, or simply by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pinfold.events import Json
from pinfold.tools.arguments import JSON_TYPES, REQUIRED, Argument
from pinfold.tools.declared.tables import Table, kind_of
from pinfold.tools.results import BadCall

Kind = Literal["string", "integer", "number", "boolean", "array", "object"]
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list"), "array"),
    **dict.fromkeys(("object", "dict", "mapping"), "object"),
}
_TYPES: Mapping[str, Any] = {**JSON_TYPES, "array": list, "object": dict}
_NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)


_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, limit: value >= limit, "must be at least {limit}, not {value}"),
    "maximum": (lambda value, limit: value <= limit, "must be at most {limit}, not {value}"),
    "minLength": (lambda value, limit: len(value) >= limit, "must have at least {limit} characters"),
    "maxLength": (lambda value, limit: len(value) <= limit, "must have at most {limit} characters, not {size}"),
    "pattern": (lambda value, limit: re.search(limit, value) is not None, "must match {limit}, and {value!r} does not"),
}
_KEYS = ("type", "description", "default", "enum", "required", "items", *_BOUNDS)
_NOTHING: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    argument: Argument
    kind: Kind
    schema: Mapping[str, Json]
    bounds: Mapping[str, Json]

    def check(self, value: Json) -> None:
        """Raises BadCall unless the value keeps to its bounds."""
        for bound, limit in self.bounds.items():
            keeps, words = _BOUNDS[bound]
            if not keeps(value, limit):
                raise BadCall(
                    f"{self.argument.name!r} {words.format(limit=limit, value=str(value)[:60], size=len(str(value)))}"
                )


def check_values(parameters: Mapping[str, Parameter], values: Mapping[str, Json]) -> None:
    for name, value in values.items():
        if value is not None:
            parameters[name].check(value)


def read_parameters(top: Table) -> dict[str, Parameter]:
    content = top.take("parameters")
    if content is None:
        return {}
    needed = None
    match content:
        case list():
            named = _of_list(top, cast("list[Json]", content))
        case {"properties": dict()}:
            named = cast("dict[str, Json]", content)["properties"]
            needed = _required_names(top, cast("dict[str, Json]", content))
        case dict():
            named = cast("dict[str, Json]", content)
        case _:
            top.fault("parameters", f"should be a mapping of names, not {kind_of(content)}")
    return {name: _parameter(top, name, value, needed) for name, value in named.items()}


def schema_of(parameters: Mapping[str, Parameter]) -> dict[str, Json]:
    required = [name for name, one in parameters.items() if one.argument.is_required]
    return {
        "type": "object",
        "properties": {name: dict(one.schema) for name, one in parameters.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _of_list(top: Table, content: list[Json]) -> dict[str, Json]:
    named: dict[str, Json] = {}
    for number, entry in enumerate(content):
        if not isinstance(entry, dict) or not isinstance(cast("dict[str, Json]", entry).get("name"), str):
            top.fault(f"parameters.{number}", "each entry of the list needs a `name`")
        rest = dict(cast("dict[str, Json]", entry))
        name = rest.pop("name")
        if name in named:
            top.fault(f"parameters.{number}", f"{name!r} stands there twice; rename one")
        named[name] = rest
    return named


def _required_names(top: Table, content: Mapping[str, Json]) -> frozenset[str]:
    required = content.get("required", [])
    names = cast("list[Json]", required) if isinstance(required, list) else [None]
    properties = content["properties"]
    for name in names:
        if not isinstance(name, str) or name not in properties:
            top.fault("parameters.required", f"should list names of parameters, not {kind_of(name)}")
    if unknown := content.keys() - {"type", "properties", "required", "additionalProperties", "title", "$schema"}:
        top.fault("parameters", f"{min(unknown)!r} is not understood here; leave it out")
    if content.get("type", "object") != "object":
        top.fault("parameters.type", "should be object, or left out")
    return frozenset(cast("list[str]", names))


def _parameter(top: Table, name: Json, content: Json, needed: frozenset[str] | None) -> Parameter:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        top.fault("parameters", f"{name!r} is no name; use letters, digits and underscores")
    if content is None or isinstance(content, str):
        content = {"type": content or "string"}
    table = Table(top.source, top.path(f"parameters.{name}"), content)
    choices = _choices(table)
    kind = _kind(table, choices)
    description = table.text("description")
    default = table.take("default", _NOTHING)
    flag = table.flag("required", None)
    is_required = default is _NOTHING and (bool(flag) if flag is not None else needed is None or name in needed)
    if default not in (_NOTHING, None) and not _fits(default, kind, choices):
        wanted = "one of the enum" if choices else f"of type {kind}"
        table.fault("default", f"should be {wanted}, not {kind_of(default)}")
    items = table.take("items")
    bounds = _bounds(table, kind)
    table.end(_KEYS)
    hint = Literal[tuple(choices)] if choices else JSON_TYPES[kind]  # pyright: ignore[reportInvalidTypeForm, reportInvalidTypeArguments]
    if not is_required and default in (_NOTHING, None):
        hint, default = cast("Any", hint) | None, None
    about: dict[str, Json] = {"description": description or None, "enum": list(choices) or None, "items": items}
    about["default"] = None if is_required else default
    schema = {"type": kind, **{key: value for key, value in about.items() if value is not None}}
    argument = Argument(name=name, hint=hint, default=REQUIRED if is_required else default, description=description)
    return Parameter(argument=argument, kind=kind, schema={**schema, **bounds}, bounds=bounds)


def _kind(table: Table, choices: Sequence[Json]) -> Kind:
    given = table.take("type", "string" if all(isinstance(one, str) for one in choices) else "number")
    kind = _KINDS.get(given) if isinstance(given, str) else None
    if kind is None:
        table.fault("type", f"should be one of {', '.join(JSON_TYPES)}, not {given!r}")
    for one in choices:
        if not _fits(one, kind, ()):
            quotes = "; put it in quotes" if kind == "string" else ""
            table.fault("enum", f"{one!r} is not of type {kind}{quotes}")
    return kind


def _choices(table: Table) -> tuple[Json, ...]:
    content = table.take("enum")
    if content is None:
        return ()
    if not isinstance(content, list) or not content:
        table.fault("enum", f"should be a list of values, not {kind_of(content)}")
    return tuple(cast("list[Json]", content))


def _bounds(table: Table, kind: Kind) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for bound in _BOUNDS:
        value = table.take(bound)
        if value is None:
            continue
        of_number = bound in ("minimum", "maximum")
        if (kind in ("integer", "number")) != of_number or (not of_number and kind != "string"):
            table.fault(bound, f"says nothing of type {kind}; leave it out")
        if bound == "pattern":
            try:
                re.compile(value)
            except (re.error, TypeError) as error:
                table.fault(bound, f"is no regular expression: {error}")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            table.fault(bound, f"should be a number, not {kind_of(value)}")
        found[bound] = value
    return found


def _fits(value: Json, kind: Kind, choices: Sequence[Json]) -> bool:
    return value in choices if choices else (type(value) is _TYPES[kind] or (kind == "number" and type(value) is int))
