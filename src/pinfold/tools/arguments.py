"""The arguments of a tool: read from signature and docstring, described as JSON schema, and checked by pydantic."""

from __future__ import annotations

import functools
import inspect
import json
import re
import types
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, Union, cast, get_type_hints

from msgspec import Struct, ValidationError, field

from pinfold.events import Json
from pinfold.text import cap_text, closest
from pinfold.tools.results import BadTool, ToolFailed

if TYPE_CHECKING:
    import pydantic
    from pydantic_core import ErrorDetails

_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
TAKEN = "use str, int, float, bool, list, dict, Literal, a dataclass or a pydantic model"

_FAULTS = 5
"""Maximum number reported for one call."""
_GIVEN = 60

_PLAIN_ARGUMENT = re.compile(r"    (\w+): (\S.*\S)")
_MARKUP = re.compile(r"^([ \t:@-]|\w+:\s*$)", re.MULTILINE)
"""A line that is indented, or may start or underline a section of a docstring."""

REQUIRED: Final = inspect.Parameter.empty
"""Stands for the default of an argument without one."""
Hint: TypeAlias = Any
"""A type annotation, or the name of a type that is not defined yet."""
JSON_TYPES: Final[Mapping[str, Hint]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
}


class Argument(Struct, frozen=True, kw_only=True):
    name: str
    hint: Hint = Any
    default: Any = REQUIRED
    description: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def takes_none(self) -> bool:
        hint = bare(self.hint)
        return hint in (Any, None, type(None), object) or type(None) in members(hint)

    @property
    def takes_text(self) -> bool:
        """True if it accepts a string."""
        hint = bare(self.hint)
        plain = [bare(member) for member in members(hint)] or [hint]
        return any(
            member in (str, Any, object) or typing.get_origin(member) is Literal or isinstance(member, str)
            for member in plain
        )

    @property
    def takes_structure(self) -> bool:
        """True if it accepts a list or an object, and no string."""
        return not self.takes_text and bare(self.hint) not in _SCALARS


class Docstring(Struct, frozen=True):
    text: str
    """The docstring without its sections on parameters, results and errors."""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def describe_function(function: Callable[..., object]) -> Docstring:
    return read_docstring(inspect.getdoc(function) or "")


def read_docstring(text: str) -> Docstring:
    """Read a docstring in Google, NumPy or reST style."""
    if "\n" not in text:
        return Docstring(text)
    head, _, arguments = text.partition("\n\nArgs:\n")
    lines = [_PLAIN_ARGUMENT.fullmatch(line) for line in arguments.splitlines()]
    if all(lines) and not _MARKUP.search(head):  # as in our own: importing the parser takes 5 % of a start
        return Docstring(head.strip(), {line[1]: line[2] for line in lines if line})
    from docstring_parser import ParseError, parse

    try:
        found = parse(text)
    except ParseError:
        return Docstring(text.strip())
    parameters = {one.arg_name.lstrip("*"): " ".join((one.description or "").split()) for one in found.params}
    return Docstring((found.description or "").strip(), parameters)


def read_signature(function: Callable[..., object], title: str, said: Docstring) -> tuple[Argument, ...]:
    """Return the arguments that `function` takes by name. Raises BadTool with what to change."""
    hints = _hints(function, title)
    found: list[Argument] = []
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind not in _NAMED_KINDS:
            raise BadTool(f"{title} cannot be a tool: parameter {name!r} cannot be passed by name; write `{name}: str`")
        if parameter.annotation is parameter.empty:
            raise BadTool(f"{title} cannot be a tool: parameter {name!r} has no type; write one, as in `{name}: str`")
        hint = hints.get(name, parameter.annotation)
        text = _annotated_text(hint) or said.parameters.get(name, "")
        found.append(Argument(name=name, hint=hint, default=parameter.default, description=text))
    return tuple(found)


def _hints(function: Callable[..., object], title: str) -> Mapping[str, Hint]:
    plain: Any = function
    while isinstance(plain, functools.partial):
        plain = cast("functools.partial[Any]", plain).func
    if not inspect.isroutine(plain):
        plain = type(plain).__call__
    try:
        return get_type_hints(plain, include_extras=True)
    except NameError:  # a type defined later in the module: it exists when the tool is called
        return {}
    except (SyntaxError, TypeError, AttributeError) as error:
        raise BadTool(f"{title} cannot be a tool: its types cannot be read: {error}") from error


def _annotated_text(hint: Hint) -> str:
    if typing.get_origin(hint) is not Annotated:
        return ""
    for note in hint.__metadata__:
        text = note if isinstance(note, str) else getattr(note, "description", None)
        if isinstance(text, str):
            return text
    return ""


def bare(hint: Hint) -> Hint:
    return bare(hint.__origin__) if typing.get_origin(hint) is Annotated else hint


def members(hint: Hint) -> tuple[Hint, ...]:
    """Return the members of a union; empty for other types."""
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else ()


def schema_of(arguments: Sequence[Argument], model: Callable[[], type[pydantic.BaseModel]]) -> dict[str, Json]:
    """Build the schema, without pydantic if every type is plain: importing it takes 0.1 s."""
    properties: dict[str, Json] = {}
    for argument in arguments:
        told = schema_of_type(argument.hint)
        if told is None or not _is_json(argument.default):
            return _by_pydantic(model())
        if argument.default is None and set(told) == {"anyOf"} and len(told["anyOf"]) == 2:
            told = dict(told["anyOf"][0])
        elif not argument.is_required:
            told["default"] = argument.default
        if argument.description:
            told["description"] = argument.description
        properties[argument.name] = told
    schema: dict[str, Json] = {"additionalProperties": False, "properties": properties, "type": "object"}
    if required := [argument.name for argument in arguments if argument.is_required]:
        schema["required"] = required
    return schema


def schema_of_result(function: Callable[..., object], title: str) -> dict[str, Json] | None:
    """Return the schema of the annotated result; None if there is none, or only pydantic could describe it."""
    return schema_of_type(_hints(function, title).get("return", Any)) or None


def schema_of_type(hint: Hint) -> dict[str, Json] | None:
    """Return the schema of a plain type; None if it needs pydantic."""
    if isinstance(hint, type) and hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if hint is Any:
        return {}
    if hint in (None, type(None)):
        return {"type": "null"}
    origin, parts = typing.get_origin(hint), list(typing.get_args(hint))
    if origin is Annotated:
        return schema_of_type(parts[0]) if all(isinstance(note, str) for note in parts[1:]) else None
    if origin is Literal and len(parts) > 1 and all(type(part) is str for part in parts):
        return {"enum": list(parts), "type": "string"}
    if union := members(hint):
        told = [schema_of_type(member) for member in union]
        # Only with None last, to match pydantic's order.
        return {"anyOf": told} if None not in told and type(None) not in union[:-1] else None
    if origin is list and (inner := schema_of_type(parts[0])) is not None:
        return {"items": inner, "type": "array"}
    if origin is dict and parts[0] is str and (inner := schema_of_type(parts[1])) is not None:
        return {"additionalProperties": inner or True, "type": "object"}
    return None


def _is_json(value: object) -> bool:
    try:
        return value is REQUIRED or json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError, RecursionError):
        return False


def _by_pydantic(model: type[pydantic.BaseModel]) -> dict[str, Json]:
    from pydantic.json_schema import PydanticJsonSchemaWarning

    with warnings.catch_warnings():
        # A default that JSON cannot hold is left out of the schema: no reason to warn.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        return _trim_schema(model.model_json_schema())


def _trim_schema(schema: Json) -> Json:
    """Drop titles, which repeat the names, and `null` where omitting the argument means the same."""
    if not isinstance(schema, dict):
        return schema
    told = {key: value for key, value in cast("dict[str, Json]", schema).items() if key != "title"}
    for key in ("properties", "$defs"):
        if isinstance(told.get(key), dict):
            told[key] = {name: _trim_schema(inner) for name, inner in told[key].items()}
    for key in ("items", "additionalProperties"):
        if key in told:
            told[key] = _trim_schema(told[key])
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(told.get(key), list):
            told[key] = [_trim_schema(inner) for inner in told[key]]
    return drop_null(told)


def drop_null(schema: Mapping[str, Json]) -> Mapping[str, Json]:
    """Drop `null` from the type of an argument whose default is None."""
    match schema:
        case {"anyOf": [{**only}, {"type": "null"}], "default": None, **rest}:
            return {**only, **rest}
        case _:
            return schema


def model_of(title: str, arguments: Sequence[Argument], hints: Mapping[str, Hint]) -> type[pydantic.BaseModel]:
    """Create the pydantic model that checks the arguments. `hints` resolve types known only by name. Raises BadTool."""
    import pydantic

    fields: dict[str, Any] = {}
    for number, argument in enumerate(arguments):
        hint = hints.get(argument.name, argument.hint)
        description = argument.description or None
        # Generated field names: `schema`, `copy` or `_x` are valid parameters, but not valid pydantic fields.
        alias = pydantic.Field(alias=argument.name, description=description)
        default = ... if argument.is_required else argument.default
        fields[f"p{number}"] = (Annotated[hint, alias], default)
    config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False, coerce_numbers_to_str=True)
    try:
        made = pydantic.create_model(title, __config__=config, **fields)
        _by_pydantic(made)
    except (pydantic.errors.PydanticUserError, NameError, SyntaxError, TypeError) as error:
        raise BadTool(f"{title} cannot be a tool: {_why(arguments, hints, error)}") from error
    return made


def _why(arguments: Sequence[Argument], hints: Mapping[str, Hint], error: Exception) -> str:
    import pydantic

    for argument in arguments:
        hint = hints.get(argument.name, argument.hint)
        try:
            pydantic.TypeAdapter[object](hint).json_schema()
        except NameError as unknown:
            return f"the type of {argument.name!r} is not defined: {unknown}"
        except (pydantic.errors.PydanticUserError, SyntaxError, TypeError):
            name = getattr(hint, "__name__", None) or str(hint)
            return f"the type of {argument.name!r}, {name}, has no form in JSON; {TAKEN}"
    return str(error).partition("\n")[0]


def check_arguments(
    tool: str, model: type[pydantic.BaseModel], arguments: Sequence[Argument], args: Json
) -> dict[str, Any]:
    """Return the arguments converted for the function. Raises ToolFailed with exactly what to fix."""
    import pydantic

    if not isinstance(args, Mapping):
        raise ToolFailed(f"wrong arguments for {tool}: they must be an object, not {short(args)}; {_takes(arguments)}")
    try:
        given = model.model_validate(args)
    except pydantic.ValidationError as error:
        faults = error.errors(include_url=False)
        words = [_fault(fault, arguments) for fault in faults[:_FAULTS]]
        if len(faults) > _FAULTS:
            words.append(f"and {len(faults) - _FAULTS} more")
        if any(len(fault["loc"]) == 1 and fault["type"] in ("missing", "extra_forbidden") for fault in faults):
            words.append(_takes(arguments))
        raise ToolFailed(f"wrong arguments for {tool}: {'; '.join(words)}") from error
    return {field.alias or name: getattr(given, name) for name, field in type(given).model_fields.items()}


def _fault(fault: ErrorDetails, arguments: Sequence[Argument]) -> str:
    where = ".".join(map(str, fault["loc"]))
    known = [argument.name for argument in arguments] if len(fault["loc"]) == 1 else []
    match fault["type"]:
        case "missing":
            told = next((a.description for a in arguments if known and a.name == where), "")
            return f"{where!r} is missing" + (f" ({cap_text(told, 200)})" if told else "")
        case "extra_forbidden" | "unexpected_keyword_argument":
            near = closest(where, known)
            return f"unknown argument {where!r}" + (f"; did you mean {near!r}?" if near else "")
        case _:
            said = fault["msg"].removeprefix("Input ").removeprefix("Value error, ")
            return f"{where!r} {said}, not {short(fault['input'])}"


def _takes(arguments: Sequence[Argument]) -> str:
    if not arguments:
        return "it takes none"
    parts = [
        argument.name if argument.is_required or argument.default is None else f"{argument.name}={argument.default!r}"
        for argument in arguments
    ]
    needed = [argument.name for argument in arguments if argument.is_required]
    more = "" if len(needed) == len(arguments) else f", of which {' and '.join(needed) or 'none'} must be given"
    return f"it takes {', '.join(parts)}{more}"


_WORDS = {
    "object": "an object",
    "array": "a list",
    "null": "nothing",
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
}


def describe_misfit(error: ValidationError, kind: Hint) -> tuple[str, str]:
    """Return the dotted path at which a value did not fit its type, and a phrase for what should be there."""
    said, _, where = str(error).partition(" - at `")
    is_key, path = where.startswith("key` in `"), where.strip("`").rpartition("$")[2].strip(".")
    for name in filter(None, path.split(".")):
        hint = get_type_hints(kind).get(name.partition("[")[0], Any)
        kind = next((one for one in members(hint) if one is not type(None)), hint)
    if found := re.match(r"Expected `(?P<kinds>[^`]+)`(?:, got `(?P<got>\w+)`| (?P<bound>.+))?", said):
        kinds = dict.fromkeys(_WORDS.get(one, one) for one in found["kinds"].split(" | ") if one != "null")
        got = f", not {_WORDS.get(found['got'], found['got'])}" if found["got"] else ""
        return path, f"{'each key ' if is_key else ''}should be {found['bound'] or ' or '.join(kinds) + got}"
    if "unknown field" in said:
        name = said.split("`")[1]
        return path, f"has no key {name!r}; {nearest_of(name, [*get_type_hints(kind)])}"
    given = said.removeprefix("Invalid enum value ")
    return path, said if given == said else f"should be one of {', '.join(typing.get_args(kind))}, not {given}"


def nearest_of(name: str, known: Sequence[str]) -> str:
    """Return advice for a name that is not among `known`."""
    near = closest(name, known)
    return f"did you mean {near}?" if near else f"there are {', '.join(known)}"


def short(value: object) -> str:
    """Return a value as shortened JSON, for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _GIVEN else f"{text[: _GIVEN - 3]}..."
