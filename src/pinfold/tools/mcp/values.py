"""Converts a server's answers to values for code and text for the model."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import mcp_types as types
from pydantic import BaseModel

from pinfold.events import Json
from pinfold.text import cap_text
from pinfold.tools.mcp.schema_check import Shape
from pinfold.tools.results import BadCall, Result

TOLD = 4_000
"""Maximum characters of a tool's own error message."""
_Part: TypeAlias = types.ContentBlock | types.TextResourceContents | types.BlobResourceContents


def of_call(result: types.CallToolResult, shape: Shape | None) -> Result:
    """Convert the result of a tool call. Raises BadCall with the tool's message if it reports an error.

    `shape` is the tool's output schema.
    """
    if result.is_error:
        said = "\n".join(map(_describe, result.content)).strip()
        raise BadCall(cap_text(said, TOLD) or "the server reported an error without a message")
    structured = result.structured_content
    broken = "the server broke its promise: "
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
    """Join parts. A single part becomes its bare value; several become a list of values labelled by kind."""
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
    """Convert a list of resources, templates or prompts."""
    value = [_plain(one) for one in listed]
    return Result(text=_as_text(value), value=value)


def _parse_value(text: str) -> Json:
    """Parse text that is a JSON object or array; return any other text unchanged."""
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
    """Return a part's value with its kind; plain text stays plain text."""
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
        raise BadCall("the server sent binary content that is not base64") from None


def _plain(model: BaseModel) -> dict[str, Json]:
    dumped: Mapping[str, Json] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {key: value for key, value in dumped.items() if key not in ("_meta", "icons")}


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
