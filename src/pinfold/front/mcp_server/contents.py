"""Results as a client gets them: text for its model, pictures, and the same as a structure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from mcp.types import CallToolResult, ContentBlock, ImageContent, TextContent

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MOST = 8
_BYTES = 4 << 20
"""Of all pictures of one result."""


def result(
    text: str,
    structure: msgspec.Struct | None = None,
    *,
    displays: Sequence[Mapping[str, bytes]] = (),
    failed: bool = False,
) -> CallToolResult:
    pictures, left_out = _pictures(displays)
    if left_out:
        text += f"\n[{left_out} more pictures were left out]"
    content: list[ContentBlock] = [TextContent(text=sendable(text)), *pictures]
    plain = None if structure is None else _plain(msgspec.to_builtins(structure))
    return CallToolResult(content=content, structured_content=plain, is_error=failed)


def failure(words: str) -> CallToolResult:
    return result(words, failed=True)


def sendable(text: str) -> str:
    """Half a surrogate pair has no place in JSON."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    match value:
        case str():
            return sendable(value)
        case dict():
            return {key: _plain(one) for key, one in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_plain(one) for one in cast("list[Any]", value)]
        case _:
            return value


def _pictures(displays: Sequence[Mapping[str, bytes]]) -> tuple[list[ImageContent], int]:
    shown: list[ImageContent] = []
    spent = left_out = 0
    for display in displays:
        mime = next((mime for mime in PICTURES if mime in display), None)
        if mime is None:
            continue
        data = display[mime]
        if len(shown) >= _MOST or spent + len(data) > _BYTES:
            left_out += 1
            continue
        spent += len(data)
        shown.append(ImageContent(data=base64.b64encode(data).decode(), mime_type=mime))
    return shown, left_out
