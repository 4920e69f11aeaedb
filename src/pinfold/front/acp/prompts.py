"""What the user of an editor sends: text, pictures, files the editor holds open, and links. Never read through the editor."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from pinfold.events import Image, Json
from pinfold.front.acp.connection import INVALID_PARAMS, RpcError
from pinfold.front.acp.updates import fence
from pinfold.text import cap_text

_WHOLE = 100_000
"""Characters of an embedded file that the model is told."""


class Prompt(Struct, frozen=True, kw_only=True):
    text: str
    images: tuple[Image, ...] = ()


def read_prompt(blocks: Json, workspace: Path, store: Callable[[bytes, str], Image]) -> Prompt:
    """`store` keeps a picture with the session; it raises ConfigError for what is none. Raises RpcError."""
    if not isinstance(blocks, list) or not blocks:
        raise RpcError(INVALID_PARAMS, "prompt: a list of content blocks is needed, and none was given")
    said: list[str] = []
    attached: list[str] = []
    images: list[Image] = []
    for block in cast("list[Json]", blocks):
        match block:
            case {"type": "text", "text": str(text)}:
                said.append(text)
            case {"type": "image", "data": str(data)}:
                images.append(store(_decode(data), "the picture"))
            case {"type": "resource_link", "uri": str(uri)}:
                said.append(_mention(uri, workspace))
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                said.append(_mention(uri, workspace))
                attached.append(f"{_mention(uri, workspace)} as the editor shows it:\n{fence(cap_text(text, _WHOLE))}")
            case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)}}:
                said.append(_mention(uri, workspace))
                images.append(store(_decode(data), uri))
            case {"type": str(kind)}:
                raise RpcError(INVALID_PARAMS, f"prompt: content of type {kind!r} is not supported, or is incomplete")
            case _:
                raise RpcError(INVALID_PARAMS, "prompt: a content block has no type")
    return Prompt(text="\n\n".join(("".join(said), *attached)).strip(), images=tuple(images))


def command_in(blocks: Json) -> tuple[str, str]:
    """The name and the arguments of a slash command; empty if the prompt is none."""
    match blocks:
        case [{"type": "text", "text": str(text)}] if text.lstrip().startswith("/"):
            name, _, rest = text.strip()[1:].partition(" ")
            return ("", "") if "/" in name or "\n" in name else (name, rest.strip())
        case _:
            return "", ""


def _mention(uri: str, workspace: Path) -> str:
    """A file by its path, from the workspace if it lies there; anything else by its address."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return f"<{uri}>"
    path = Path(unquote(parts.path))
    lines = f" ({parts.fragment})" if parts.fragment else ""
    return f"`{path.relative_to(workspace) if path.is_relative_to(workspace) else path}`{lines}"


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"prompt: the data of a block is no base64: {error}") from error
