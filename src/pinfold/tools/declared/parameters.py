"""The parameters of a declared tool, which a file gives as JSON schema, as a list, or by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from msgspec import UNSET, Struct, field, to_builtins

from pinfold.events import Json
from pinfold.tools.arguments import JSON_TYPES, REQUIRED, Argument, Hint
from pinfold.tools.declared.tables import fault, read_as
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
_TYPES: Mapping[str, Hint] = {**JSON_TYPES, "array": list, "object": dict}
_NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)


_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, limit: value >= limit, "must be at least {limit}, not {value}"),
    "maximum": (lambda value, limit: value <= limit, "must be at most {limit}, not {value}"),
    "minLength": (lambda value, limit: len(value) >= limit, "must have at least {limit} characters"),
    "maxLength": (lambda value, limit: len(value) <= limit, "must have at most {limit} characters, not {size}"),
    "pattern": (lambda value, limit: re.search(limit, value) is not None, "must match {limit}, and {value!r} does not"),
}
_OF_NUMBERS = ("minimum", "maximum")


class _Described(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One parameter, as written in the file."""

    type: str | None = None
    description: str = ""
    default: Json = UNSET
    enum: tuple[Json, ...] = ()
    required: bool | None = None
    items: Json = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


class _Schema(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """All parameters, as JSON schema."""

    type: Literal["object"] = "object"
    properties: dict[str, Json]
    required: tuple[str, ...] = ()
    additional_properties: Json = None
    title: Json = None
    dialect: Json = field(default=None, name="$schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    argument: Argument
    kind: Kind
    schema: Mapping[str, Json]
    bounds: Mapping[str, Json]

    def check(self, value: Json) -> None:
        """Check the value's bounds. Raises BadCall."""
        for bound, limit in self.bounds.items():
            keeps, words = _BOUNDS[bound]
            if not keeps(value, limit):
                why = words.format(limit=limit, value=str(value)[:60], size=len(str(value)))
                raise BadCall(f"{self.argument.name!r} {why}")


def check_values(parameters: Mapping[str, Parameter], values: Mapping[str, Json]) -> None:
    for name, value in values.items():
        if value is not None:
            parameters[name].check(value)


def read_parameters(content: Json, source: str) -> dict[str, Parameter]:
    needed = None
    match content:
        case list():
            named = _of_list(cast("list[Json]", content), source)
        case {"properties": dict()}:
            schema = read_as(content, _Schema, source, "parameters")
            named, needed = schema.properties, frozenset(schema.required)
            if unknown := needed - named.keys():
                fault(source, "parameters.required", f"should list names of parameters, not {min(unknown)!r}")
        case _:
            named = read_as(content or {}, dict[str, Json], source, "parameters")
    return {name: _parameter(name, value, needed, source) for name, value in named.items()}


def schema_of(parameters: Mapping[str, Parameter]) -> dict[str, Json]:
    required = [name for name, one in parameters.items() if one.argument.is_required]
    return {
        "type": "object",
        "properties": {name: dict(one.schema) for name, one in parameters.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _of_list(content: list[Json], source: str) -> dict[str, Json]:
    named: dict[str, Json] = {}
    for number, entry in enumerate(content):
        match entry:
            case {"name": str(name), **rest} if name not in named:
                named[name] = rest
            case _:
                fault(source, f"parameters.{number}", "each entry of the list needs a `name` of its own")
    return named


def _parameter(name: str, content: Json, needed: frozenset[str] | None, source: str) -> Parameter:
    if not _NAME.fullmatch(name):
        fault(source, "parameters", f"{name!r} is not a valid name; use letters, digits and underscores")
    if content is None or isinstance(content, str):
        content = {"type": content or "string"}
    where = f"parameters.{name}"
    given = read_as(content, _Described, source, where)
    usual = "string" if all(isinstance(one, str) for one in given.enum) else "number"
    kind = _KINDS.get(given.type or usual)
    if kind is None:
        fault(source, f"{where}.type", f"should be one of {', '.join(JSON_TYPES)}, not {given.type!r}")
    if odd := [one for one in given.enum if not _fits(one, kind, ())]:
        quotes = "; put it in quotes" if kind == "string" else ""
        fault(source, f"{where}.enum", f"{odd[0]!r} is not of type {kind}{quotes}")
    default: Any = None if given.default is UNSET else given.default
    if default is not None and not _fits(default, kind, given.enum):
        wanted = "one of the enum" if given.enum else f"of type {kind}"
        fault(source, f"{where}.default", f"should be {wanted}, not {default!r}")
    is_wanted = given.required if given.required is not None else needed is None or name in needed
    is_required = given.default is UNSET and is_wanted
    hint = Literal[given.enum] if given.enum else JSON_TYPES[kind]  # pyright: ignore[reportInvalidTypeForm, reportInvalidTypeArguments]
    if not is_required and default is None:
        hint = cast("Any", hint) | None
    about = {"description": given.description or None, "enum": list(given.enum) or None, "items": given.items}
    schema = {key: value for key, value in {**about, "default": default}.items() if value is not None}
    bounds = _bounds(given, kind, source, where)
    argument = Argument(
        name=name, hint=hint, default=REQUIRED if is_required else default, description=given.description
    )
    return Parameter(argument=argument, kind=kind, schema={"type": kind, **schema, **bounds}, bounds=bounds)


def _bounds(given: _Described, kind: Kind, source: str, where: str) -> dict[str, Json]:
    found = {name: value for name, value in to_builtins(given).items() if name in _BOUNDS and value is not None}
    fitting = {"string": {*_BOUNDS} - {*_OF_NUMBERS}, "integer": {*_OF_NUMBERS}, "number": {*_OF_NUMBERS}}
    if odd := found.keys() - fitting.get(kind, set()):
        fault(source, f"{where}.{min(odd)}", f"does not apply to type {kind}; leave it out")
    try:
        re.compile(given.pattern or "")
    except re.error as error:
        fault(source, f"{where}.pattern", f"is not a regular expression: {error}")
    return found


def _fits(value: Json, kind: Kind, choices: Sequence[Json]) -> bool:
    return value in choices if choices else (type(value) is _TYPES[kind] or (kind == "number" and type(value) is int))
