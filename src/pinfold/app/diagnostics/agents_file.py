"""A first AGENTS.md for a folder, from a look at it: what lies there, how it is tested, what its tables hold. Runs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pinfold.app.storage.session_reader import list_folder
from pinfold.app.trust.project_files import UnsafeFile, read_below
from pinfold.text import cap_text, presentable_line

NAME = "AGENTS.md"
_TABLES = 5
_HEADER = 200
_TARGET = re.compile(r"^([A-Za-z][\w-]{0,40}):", re.MULTILINE)
_SCRIPT = re.compile(r"[A-Za-z][\w:.-]{0,40}")
_KNOWN = {"Cargo.toml": "cargo test", "go.mod": "go test ./...", "pom.xml": "mvn test"}


def draft(workspace: Path) -> str:
    """Fit to be shown, and to be edited."""
    parts = [f"# {presentable_line(workspace.name) or 'This folder'}", "", "What is here:", ""]
    parts += [f"- `{line.strip()}`" for line in list_folder(workspace)]
    for title, lines in (
        ("Commands:", [*_commands(workspace)]),
        ("Tables, by their first line:", [*_tables(workspace)]),
    ):
        if lines:
            parts += ["", title, "", *lines]
    return "\n".join(
        [*parts, "", "Rules for the agent:", "", "- Keep changes small, and run the tests after them.", ""]
    )


def _commands(workspace: Path) -> Iterator[str]:
    there = {path.name for path in workspace.iterdir()}
    if "pytest" in _text(workspace, "pyproject.toml"):
        yield f"- test: `{'uv run ' if 'uv.lock' in there else ''}pytest`"
    try:
        scripts = cast("dict[str, Any]", json.loads(_text(workspace, "package.json") or "{}").get("scripts"))
        names = [name for name in scripts or () if _SCRIPT.fullmatch(name)]
    except (ValueError, AttributeError, TypeError, RecursionError):
        names = []
    yield from (f"- `npm run {name}`" for name in names[:8])
    targets = dict.fromkeys(_TARGET.findall(_text(workspace, "Makefile")))
    yield from (f"- `make {target}`" for target in list(targets)[:8])
    yield from (f"- test: `{command}`" for file, command in _KNOWN.items() if file in there)


def _tables(workspace: Path) -> Iterator[str]:
    for path in sorted(workspace.glob("*.[ct]sv"))[:_TABLES]:
        if header := _text(workspace, path.name).partition("\n")[0].strip():
            yield f"- `{presentable_line(path.name)}`: `{cap_text(presentable_line(header), _HEADER)}`"


def _text(workspace: Path, name: str) -> str:
    """Empty where it cannot be read."""
    try:
        return read_below(workspace, name).decode("utf-8", "replace")
    except (UnsafeFile, OSError):
        return ""
