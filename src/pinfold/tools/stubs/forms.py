"""How code calls a tool: parameters with Python names, type of the result, and a short notation for both."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from msgspec import Struct

from pinfold.events import Json
from pinfold.text import printable_line
from pinfold.tools.stubs.schema_types import Reader, as_object, is_key, names_required
from pinfold.tools.stubs.shapes import (
    ANY,
    NONE,
    Choice,
    DictOf,
    Either,
    Field,
    ListOf,
    Plain,
    Record,
    Records,
    TupleOf,
    Type,
    camel,
    fits,
    unique,
)
from pinfold.tools.tool import AnyTool

PARAMETERS = 64
"""Maximum number of named parameters; others go into `**more`."""
DEFAULT_CHARS = 200


class Parameter(Struct, frozen=True, kw_only=True):
    name: str
    """The tool's own name for it."""
    identifier: str
    """Its name in Python."""
    type: Type
    is_required: bool
    default: str | None = None
    """Python source of the default; None: an argument that is not given is omitted from the call."""
    description: str = ""


class Form(Struct, frozen=True, kw_only=True):
    parameters: tuple[Parameter, ...]
    """Parameters, the required ones first."""
    more: tuple[str, Type] | None
    """Name and type of further keyword arguments, if the tool takes any."""
    records: Records
    """Objects with known keys in its arguments."""
    result: Type
    result_records: Records
    looked_at: int = 0
    """Number of schemas read for it."""


PLAINEST = Form(parameters=(), more=("arguments", ANY), records={}, result=ANY, result_records={})
"""Accepts any keyword arguments: for a tool whose schema would make the module too large."""


def form_of(tool: AnyTool, identifier: str) -> Form:
    """Derive the form of a tool from its schemas. `identifier` is the prefix for names of records."""
    taken = Reader(tool.schema.parameters)
    whole = taken.put_together(tool.schema.parameters)
    parameters, is_cut = _parameters(taken, whole, identifier)
    others = _others(taken, whole, identifier, is_cut=is_cut)
    names = [one.identifier for one in parameters]
    (more,) = unique(["more" if names else "arguments"], taken=names, prefix="arg").values()
    given, result = Reader(tool.returns), ANY
    if tool.returns is not None:
        title = tool.returns.get("title")
        has_name = isinstance(title, str) and re.fullmatch(r"[A-Z][A-Za-z0-9]{0,39}", title)
        result = given.read_reference("#", str(title) if has_name else camel(identifier, "result"))
    return Form(
        parameters=parameters,
        more=None if others is None else (more, others),
        records=taken.records,
        result=result,
        result_records=given.records,
        looked_at=taken.looked_at + given.looked_at,
    )


def _parameters(reader: Reader, schema: Mapping[str, Json], identifier: str) -> tuple[tuple[Parameter, ...], bool]:
    """Return the parameters, and whether some could not be named."""
    known = as_object(schema.get("properties"))
    required = names_required(schema)
    # Required names first, so that the limit does not drop them.
    keys = [key for key in {**required, **known} if is_key(key)][:PARAMETERS]
    # `locals` is taken: the function's body calls it.
    names = unique(keys, taken=("locals",), prefix="arg")
    found: list[Parameter] = []
    for key in keys:
        shape = reader.read(known.get(key), camel(identifier, key))
        found.append(_parameter(known.get(key), shape, key, names[key], is_required=key in required))
    found.sort(key=lambda one: not one.is_required)
    return tuple(found), len(keys) < len(known.keys() | required.keys())


def _parameter(schema: Json, shape: Type, name: str, identifier: str, *, is_required: bool) -> Parameter:
    details = as_object(schema)
    description = details.get("description")
    default = None
    # A default that does not fit its own schema is not sent; the tool applies its default itself.
    if "default" in details and fits(details["default"], shape):
        default = literal(details["default"])
    return Parameter(
        name=name,
        identifier=identifier,
        type=shape,
        is_required=is_required and default is None,
        default=default,
        description=description if isinstance(description, str) else "",
    )


def _others(reader: Reader, schema: Mapping[str, Json], identifier: str, *, is_cut: bool) -> Type | None:
    others = schema.get("additionalProperties")
    is_open = schema.get("type", "object") != "object" or not schema.keys() & {"properties", "type"}
    if is_cut or is_open or others is True or "patternProperties" in schema:
        return ANY
    return reader.read(others, camel(identifier, "more")) if isinstance(others, Mapping) else None


def literal(value: Json) -> str | None:
    """Return a JSON value as Python source; None if it is long or not JSON."""
    try:
        text = repr(json.loads(json.dumps(value, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= DEFAULT_CHARS else None


VALUES = 12
FIELDS = 8
DEPTH = 2
"""Levels of nested objects that are spelled out."""
TYPE_CHARS = 240
TYPES = 120
"""Maximum number of types in one text; more would not fit."""
CALL_CHARS = 400


def short_call(form: Form, name: str) -> str:
    """Return `name(owner: str, state: 'open'|'closed' = 'open', page?: int) -> list`. If it gets long, optional
    parameters lose their types."""
    parts: list[str] = []
    chars = 0
    for parameter in form.parameters:
        part = _part(parameter, form.records)
        if not parameter.is_required and chars + len(part) > CALL_CHARS:
            part = f"{parameter.identifier}?"
        if chars > 2 * CALL_CHARS:
            parts.append("...")
            break
        parts.append(part)
        chars += len(part)
    if form.more is not None:
        parts.append(f"**{form.more[0]}")
    result = "" if form.result == ANY else f" -> {short(form.result, form.result_records, keys=True)}"
    return f"{name}({', '.join(parts)}){result}"


def bare_call(form: Form, name: str) -> str:
    """Return `name(owner, repo, ...)`, with required parameters only."""
    parts = [one.identifier for one in form.parameters if one.is_required]
    if len(parts) < len(form.parameters) or form.more is not None:
        parts.append("...")
    return f"{name}({', '.join(parts)})"


def short(shape: Type, records: Records, *, keys: bool = False) -> str:
    """Return a type in short notation, with objects spelled out as far as they fit.

    With `keys`, fields of plain types are given by name only.
    """
    text = ""
    for depth in range(DEPTH, -1, -1):
        text = _Notation(records, keys=keys).of(shape, depth)
        if len(text) <= TYPE_CHARS:
            return text
    return f"{text[: TYPE_CHARS - 3]}..."


def _part(parameter: Parameter, records: Records) -> str:
    shape = parameter.type
    if parameter.default in (None, "None") and not parameter.is_required and isinstance(shape, Either):
        # Omitting the argument means the same as None.
        kept = tuple(member for member in shape.members if member != NONE)
        shape = kept[0] if len(kept) == 1 else Either(kept)
    typed = "" if shape == ANY else f": {short(shape, records)}"
    told = "" if parameter.default in (None, "None") else parameter.default or ""
    if shape == Plain("str") or (told and _is_plain(shape, choices=False)):
        typed = ""  # most parameters are text, and a default shows its type
    if not told:
        return f"{parameter.identifier}{'' if parameter.is_required else '?'}{typed}"
    default = printable_line(told)
    return f"{parameter.identifier}{typed} = {default}" if typed else f"{parameter.identifier}={default}"


def _is_plain(shape: Type, *, choices: bool = True) -> bool:
    match shape:
        case Plain():
            return True
        case Choice():
            return choices
        case ListOf(item):
            return isinstance(item, Plain)
        case Either(members):
            return all(_is_plain(member, choices=choices) for member in members)
        case _:
            return False


class _Notation:
    def __init__(self, records: Records, *, keys: bool) -> None:
        self._records = records
        self._keys = keys
        self._left = TYPES

    def of(self, shape: Type, depth: int) -> str:
        self._left -= 1
        if self._left < 0:
            return "..."
        match shape:
            case Plain(name):
                return name
            case Choice(values):
                more = "|..." if len(values) > VALUES else ""
                return "|".join(printable_line(repr(value)) for value in values[:VALUES]) + more
            case ListOf(item):
                return "list" if item == ANY else f"list[{self.of(item, depth)}]"
            case TupleOf(items):
                return f"tuple[{', '.join(self.of(item, depth) for item in items)}]"
            case DictOf(value):
                return "dict" if value == ANY else f"dict[str, {self.of(value, depth)}]"
            case Either(members):
                return "|".join(self.of(member, depth) for member in members)
            case Record(name):
                return self._object(self._records[name], depth) if depth else "dict"

    def _object(self, fields: tuple[Field, ...], depth: int) -> str:
        most = 2 * FIELDS if self._keys else FIELDS
        parts = [self._field(field, depth) for field in fields[:most]]
        return f"{{{', '.join([*parts, '...'] if len(fields) > most else parts)}}}"

    def _field(self, field: Field, depth: int) -> str:
        name = field.name if field.name.isidentifier() and field.name.isascii() else repr(field.name)
        is_plain = field.type == ANY or (self._keys and _is_plain(field.type))
        typed = "" if is_plain else f": {self.of(field.type, depth - 1)}"
        return f"{printable_line(name)}{'' if field.is_required else '?'}{typed}"
