"""Tools of other packages: the entry points `pinfold.tools`. A package is imported only when its tool is wanted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from pinfold.text import first_line
from pinfold.tools.results import BadTool
from pinfold.tools.tool import AnyTool, Tool, as_tool

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "pinfold.tools"


class Plugged(Struct, frozen=True):
    tools: tuple[AnyTool, ...]
    faults: tuple[str, ...]
    """A line for each entry point that gave none."""


def find_entry_points() -> Mapping[str, EntryPoint]:
    """By name; nothing is imported."""
    if not _is_any(tuple(map(_folder_state, sys.path))):
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _folder_state(folder: str) -> tuple[str, int]:
    """A folder changes when a package is installed there."""
    place = os.path.abspath(folder)  # noqa: PTH100 - Path takes longer, and every session asks
    with suppress(OSError):
        return place, os.stat(place).st_mtime_ns  # noqa: PTH116
    return place, 0


@lru_cache(maxsize=8)
def _is_any(folders: tuple[tuple[str, int], ...]) -> bool:
    """Whether any package declares such an entry point. `importlib.metadata` takes a hundred times as long to say no."""
    files = (file for folder, _ in folders for file in Path(folder).glob("*-info/entry_points.txt"))
    with suppress(OSError):
        return any(f"[{GROUP}]".encode() in file.read_bytes() for file in files)
    return True


def load_plugins(wanted: Iterable[str] = ("*",)) -> Plugged:
    """The tools of all entry points whose names match; one that is broken is named and left out."""
    patterns = tuple(wanted)
    tools: list[AnyTool] = []
    faults: list[str] = []
    for name, point in sorted(find_entry_points().items()):
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        try:
            tools += _as_tools(point.load())
        except BadTool as fault:
            faults.append(_describe_fault(point, str(fault)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another package's fault must not stop Pinfold
            faults.append(_describe_fault(point, f"{type(error).__name__}: {error}"))
    return Plugged(tuple(tools), tuple(faults))


def _as_tools(loaded: object) -> list[AnyTool]:
    if isinstance(loaded, Tool) or callable(loaded):
        return [as_tool(cast("Callable[..., Any]", loaded))]
    if isinstance(loaded, Iterable) and not isinstance(loaded, str | bytes | Mapping):
        return [tool for one in cast("Iterable[object]", loaded) for tool in _as_tools(one)]
    raise BadTool(
        f"it gives a {type(cast('object', loaded)).__name__}; it should be a tool, a function or a list of them"
    )


def _describe_fault(point: EntryPoint, why: str) -> str:
    package = point.dist.name if point.dist else point.module
    return f"the tool {point.name!r} of {package} is left out: {first_line(why)}"
