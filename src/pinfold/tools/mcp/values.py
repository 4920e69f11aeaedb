"""What goes to a server and comes back: checked against the server's schema in bounded time, as values for code and text for the model."""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias, cast

import mcp_types as types
from pydantic import BaseModel

from pinfold.events import Json
from pinfold.text import cap_text, join_names
from pinfold.tools.arguments import JSON_TYPES, REQUIRED, Argument, short
from pinfold.tools.results import BadCall, Result
from pinfold.tools.stubs.schema_types import as_list, as_object

WORK_S = 0.5
_FAULTS = 5
_WORDS = 300
_DEEP = 64
_UNCHECKED = frozenset({"pattern", "patternProperties", "unevaluatedProperties", "uniqueItems", "format"})
"""These can take exponential or quadratic time; the server checks them itself."""


class _TooLong(Exception):
    pass


class Shape:
    """A schema, ready to check values with. An invalid schema lets everything pass: the server will judge."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._schema = schema
        self._deadline = 0.0
        self.required: Sequence[Json] = as_list(schema.get("required"))

    def faults(self, value: Json) -> tuple[str, ...]:
        """What is wrong with it, one line each; none if it fits or that cannot be told."""
        if self._validator is None:
            return ()
        from referencing.exceptions import Unresolvable

        self._deadline = time.monotonic() + WORK_S
        try:
            found = [_describe_fault(error) for error in islice(self._validator.iter_errors(value), _FAULTS + 1)]
        except (_TooLong, RecursionError, Unresolvable, TypeError, ValueError, LookupError, AttributeError):
            return ()
        return *found[:_FAULTS], *(["and more"] if len(found) > _FAULTS else [])

    @cached_property
    def _validator(self) -> Any:
        """None where the schema is none."""
        from jsonschema import SchemaError, validators
        from referencing import Registry

        try:
            kind: Any = cast("Any", validators).validator_for(self._schema)
            schema = _without_dialects(self._schema, _DEEP)
            kind.check_schema(schema)
        except (SchemaError, RecursionError, TypeError, ValueError, LookupError, AttributeError):
            return None
        known: Mapping[str, Any] = kind.VALIDATORS
        checks = {keyword: self._limit_time(keyword, check) for keyword, check in known.items()}
        # An empty registry: what a schema refers to is within it, and nothing is fetched.
        return cast("Any", validators).extend(kind, checks)(schema, registry=cast("Any", Registry)())

    def _limit_time(self, keyword: str, check: Callable[..., Iterator[Any] | None]) -> Callable[..., Iterator[Any]]:
        def check_in_time(validator: Any, said: Json, value: Json, schema: Mapping[str, Json]) -> Iterator[Any]:
            if time.monotonic() > self._deadline:
                raise _TooLong
            unknown = keyword == "additionalProperties" and "patternProperties" in schema
            if keyword not in _UNCHECKED and not unknown:
                yield from check(validator, said, value, schema) or ()

        return check_in_time


def arguments_of(schema: Mapping[str, Json]) -> tuple[Argument, ...]:
    """What a call takes by name, as far as a schema tells."""
    required = as_list(schema.get("required"))
    found: list[Argument] = []
    for name, said in as_object(schema.get("properties")).items():
        table = as_object(said)
        kind, text = table.get("type"), table.get("description")
        hint = JSON_TYPES.get(kind, Any) if isinstance(kind, str) else Any
        default = REQUIRED if name in required else table.get("default")
        description = text if isinstance(text, str) else ""
        found.append(Argument(name=name, hint=hint, default=default, description=description))
    return tuple(found)


def _without_dialects(schema: Json, depth: int) -> Json:
    """A part that says it is of another dialect would be checked without our bounds."""
    if depth == 0:
        raise ValueError("too deep")
    match schema:
        case dict():
            return {
                key: _without_dialects(value, depth - 1)
                for key, value in cast("dict[str, Json]", schema).items()
                if key != "$schema" or not isinstance(value, str)
            }
        case list():
            return [_without_dialects(value, depth - 1) for value in cast("list[Json]", schema)]
        case _:
            return schema


def _describe_fault(error: Any) -> str:
    path = ".".join(map(str, error.absolute_path))
    where = f"{path!r}" if path else "it"
    value, said = error.instance, error.validator_value
    match error.validator:
        case "required":
            name = str(error.message).removesuffix(" is a required property").strip("'")
            return f"{'.'.join(filter(None, (path, name)))!r} is missing"
        case "additionalProperties" if said is False:
            known = list(error.schema.get("properties", {}))
            unknown = [name for name in value if name not in known]
            near = difflib.get_close_matches(str(unknown[0]), known, n=1) if unknown else []
            more = f"; did you mean {near[0]!r}?" if near else f"; there is {join_names(known, 12)}" if known else ""
            return f"unknown {join_names([repr(name) for name in unknown], 5)}{f' in {path!r}' if path else ''}{more}"
        case "type":
            kinds = said if isinstance(said, str) else " or ".join(map(str, said))
            return f"{where} should be {kinds}, not {short(value)}"
        case "enum":
            return f"{where} should be one of {join_names([short(one) for one in said], 12)}, not {short(value)}"
        case "anyOf" | "oneOf":
            return f"{where} has none of the forms it may have: {short(value)}"
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum" | "const":
            return f"{where} should be {_BOUNDS[error.validator]} {short(said)}, not {short(value)}"
        case _:
            return f"{where}: {' '.join(str(error.message).split())[:_WORDS]}"


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "const": "just",
}


TOLD = 4_000
"""Characters of a tool's own complaint."""
_Part: TypeAlias = types.ContentBlock | types.TextResourceContents | types.BlobResourceContents


def of_call(result: types.CallToolResult, shape: Shape | None) -> Result:
    """What a tool gave; BadCall with its own words where it says that it failed.

    `shape` is what it said its structured values look like.
    """
    if result.is_error:
        said = "\n".join(map(_describe, result.content)).strip()
        raise BadCall(cap_text(said, TOLD) or "the server reported an error without a message")
    structured = result.structured_content
    broken = "the server broke its word: "
    if shape and structured is None and "structured_content" not in result.model_fields_set:
        raise BadCall(f"{broken}the tool promises structured values (outputSchema) and gave none; it was run")
    if shape and (faults := shape.faults(structured)):
        raise BadCall(f"{broken}what the tool gave does not fit its own outputSchema; it was run: {'; '.join(faults)}")
    if structured is not None:
        return Result(text=_as_text(structured), value=structured)
    match result.content:
        case [types.TextContent(text=text)]:
            return Result(text=text, value=_parse_value(text))
        case parts:
            return _join(parts)


def of_resource(result: types.ReadResourceResult) -> Result:
    return _join(result.contents)


def _join(parts: Sequence[_Part]) -> Result:
    """One part gives its bare value; of several, each says what it is."""
    if not parts:
        return Result(text="(nothing)", value=None)
    value = _value(parts[0]) if len(parts) == 1 else [_labelled_value(part) for part in parts]
    return Result(text="\n".join(map(_describe, parts)), value=value)


def of_prompt(result: types.GetPromptResult) -> Result:
    value: dict[str, Json] = {
        "description": result.description or "",
        "messages": [{"role": one.role, "content": _value(one.content)} for one in result.messages],
    }
    text = "\n".join(f"{one.role}: {_describe(one.content)}" for one in result.messages)
    return Result(text=text, value=value)


def of_listing(listed: Sequence[BaseModel]) -> Result:
    """Resources, templates or prompts as they are described."""
    value = [_plain(one) for one in listed]
    return Result(text=_as_text(value), value=value)


def _parse_value(text: str) -> Json:
    """An object or an array is meant as one; anything else is text as it stands."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _value(part: _Part) -> Json:
    match part:
        case types.TextContent(text=text) | types.TextResourceContents(text=text):
            return text
        case types.ImageContent(data=data) | types.AudioContent(data=data) | types.BlobResourceContents(blob=data):
            return _decode_base64(data)
        case types.EmbeddedResource(resource=resource):
            return _value(resource)
        case types.ResourceLink():
            return _plain(part)


def _labelled_value(part: _Part) -> Json:
    """Where there are several, each says what it is; text is text."""
    match part:
        case types.ImageContent() | types.AudioContent():
            return {"type": part.type, "mime": part.mime_type, "data": _value(part)}
        case types.TextResourceContents() | types.BlobResourceContents():
            body = "text" if isinstance(part, types.TextResourceContents) else "data"
            return {"uri": str(part.uri), "mime": part.mime_type or "", body: _value(part)}
        case types.EmbeddedResource(resource=resource):
            return {"type": "resource", **cast("dict[str, Json]", _labelled_value(resource))}
        case _:
            return _value(part)


def _describe(part: _Part) -> str:
    match part:
        case types.TextContent(text=text) | types.TextResourceContents(text=text):
            return text
        case types.ImageContent() | types.AudioContent():
            return f"[{part.type} {part.mime_type}, {_size(part.data)}]"
        case types.BlobResourceContents():
            return f"[{part.mime_type or 'resource'}, {_size(part.blob)}]"
        case types.EmbeddedResource(resource=resource):
            return _describe(resource)
        case types.ResourceLink():
            return f"[resource {part.uri}{f', {part.description}' if part.description else ''}]"


def _size(data: str) -> str:
    return f"{max(0, len(data) * 3 // 4 - data[-2:].count('=')):,} bytes"


def _decode_base64(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BadCall("the server sent binary content that is no base64") from None


def _plain(model: BaseModel) -> dict[str, Json]:
    dumped: Mapping[str, Json] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {key: value for key, value in dumped.items() if key not in ("_meta", "icons")}


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
