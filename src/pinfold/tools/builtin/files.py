from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinfold.events import Json
from pinfold.tools.ports import Inside, Kept
from pinfold.tools.tool import Tool

WRITES = ("write_file", "edit_file", "apply_patch")


def file_tools(inside: Inside, kept: Kept | None = None) -> list[Tool[..., Any]]:
    return []


async def preview(inside: Inside, tool: str, args: Mapping[str, Json]) -> str:
    return ""


async def measure(inside: Inside, paths: Sequence[str]) -> Any:
    return None
