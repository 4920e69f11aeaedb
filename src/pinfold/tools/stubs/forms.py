"""A tool as code calls it: parameters with Python names, and the type of the result."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from pinfold.events import Json
from pinfold.tools.stubs.names import camel, unique
from pinfold.tools.stubs.schema_types import Reader, as_object, is_key, names_required
from pinfold.tools.stubs.shapes import ANY, Records, Type, fits
from pinfold.tools.tool import Tool

AnyTool: TypeAlias = Tool[..., Any]
PARAMETERS = 64
"""With a name of their own; what is beyond goes into `**more`."""
DEFAULT_CHARS = 200
_TITLE = re.compile(r"[A-Z][A-Za-z0-9]{0,39}")


class Parameter(Struct, frozen=True, kw_only=True):
    name: str
    """As the tool knows it."""
    identifier: str
    """As code writes it."""
    type: Type
    is_required: bool
    default: str | None = None
    """As Python; None: it is left out of the call when it is not given."""
    description: str = ""


class Form(Struct, frozen=True, kw_only=True):
    parameters: tuple[Parameter, ...]
    """Those that must be given first."""
    more: tuple[str, Type] | None
    """Name and type of further keyword arguments, where the tool takes any."""
    records: Records
    """Objects with known keys that it takes."""
    result: Type
    result_records: Records
    looked_at: int = 0
    """Schemas that were read for it."""

    @property
    def renames(self) -> bool:
        return any(one.name != one.identifier for one in self.parameters)


PLAINEST = Form(parameters=(), more=("arguments", ANY), records={}, result=ANY, result_records={})
"""Takes any keyword arguments: for a tool whose schema would take too much room."""


def form_of(tool: AnyTool, identifier: str) -> Form:
    """`identifier` begins the names of the objects it takes and gives."""
    taken = Reader(tool.schema.parameters)
    whole = taken.put_together(tool.schema.parameters)
    parameters, is_cut = _parameters(taken, whole, identifier)
    others = _others(taken, whole, identifier, is_cut=is_cut)
    names = [one.identifier for one in parameters]
    (more,) = unique(["more" if names else "arguments"], taken=names, prefix="arg").values()
    given, result = Reader(tool.returns), ANY
    if tool.returns is not None:
        title = tool.returns.get("title")
        has_name = isinstance(title, str) and _TITLE.fullmatch(title)
        result = given.read_root(str(title) if has_name else camel(identifier, "result"))
    return Form(
        parameters=parameters,
        more=None if others is None else (more, others),
        records=taken.records,
        result=result,
        result_records=given.records,
        looked_at=taken.looked_at + given.looked_at,
    )


def _parameters(reader: Reader, schema: Mapping[str, Json], identifier: str) -> tuple[tuple[Parameter, ...], bool]:
    """The parameters, and whether there are more than can be named."""
    known = as_object(schema.get("properties"))
    required = names_required(schema)
    # Required names first, so that the limit does not drop them.
    keys = [key for key in {**required, **known} if is_key(key)][:PARAMETERS]
    # The function's body says `locals()`.
    names = unique(keys, taken=("locals",), prefix="arg")
    found = [
        _parameter(
            known.get(key),
            reader.read(known.get(key), camel(identifier, key)),
            name=key,
            identifier=names[key],
            is_required=key in required,
        )
        for key in keys
    ]
    found.sort(key=lambda one: not one.is_required)
    return tuple(found), len(keys) < len(known.keys() | required.keys())


def _parameter(schema: Json, shape: Type, *, name: str, identifier: str, is_required: bool) -> Parameter:
    details = as_object(schema)
    description = details.get("description")
    default = None
    # A default that its own schema refuses is not sent; the tool has its own.
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
    """A JSON value as Python, if it is short."""
    try:
        text = repr(json.loads(json.dumps(value, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= DEFAULT_CHARS else None
