"""What a file of a workspace would do if it were obeyed, for who has to decide: what it starts or calls, to the last letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from pinfold.app.trust.project_formats import FOLDER, keys_of, names_of, parse_command
from pinfold.text import redact

_FIRST = 60
"""Characters of its first line that are quoted."""


def summarize_effects(name: str, data: bytes, workspace: Path) -> tuple[str, ...]:
    """In lines; `name` is its path from the workspace. Holds no secret, but may hold anything else: not fit to print as it is."""
    if name == ".mcp.json":
        return tuple(map(redact, _servers(data, str(workspace / name))))
    if name.startswith("tools/"):
        text = redact(data.decode("utf-8", "replace"))
        return ("adds a tool:", *(f"    {line}" for line in text.splitlines()))
    return (_summarize_line(name, data),)


def _summarize_line(name: str, data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0][:_FIRST] if lines else "nothing"
    match name.replace("../", ""):
        case "AGENTS.md" | "CLAUDE.md":
            return f"tells the model, in {len(lines)} lines: {first}"
        case "pinfold.toml":
            return f"sets {_settings(text)}"
        case ".env":
            return _variables(data)
        case _ if name.startswith(f"{FOLDER}/"):
            return f"adds a command: {parse_command(name, data, '').words[:_FIRST]}"
        case _:
            return f"tells the model when it is asked for: {first}"


def _settings(text: str) -> str:
    import tomllib

    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return "nothing: it is not valid TOML"
    keys: list[str] = []
    for section, content in parsed.items():
        fields = _fields(content) or {"": content}
        keys += [f"{section}.{key}".rstrip(".") + f" = {_format_value(value)}" for key, value in fields.items()]
    return ", ".join(keys) or "nothing"


def _format_value(value: object) -> str:
    """All of it: a list may name packages."""
    return redact(json.dumps(value, default=str, ensure_ascii=False))


def _servers(data: bytes, origin: str) -> tuple[str, ...]:
    from pinfold.app.trust.mcp_reach import apply_reach, describe_server
    from pinfold.tools.mcp.spec import read_servers

    specs, faults = read_servers(data, origin)
    lines = [line for spec in specs for line in describe_server(apply_reach(spec))]
    return (
        f"names {len(specs)} MCP server{'s' * (len(specs) != 1)}:",
        *(f"    {line}" for line in (*lines, *(f"not understood: {fault}" for fault in faults))),
    )


def _fields(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _variables(data: bytes) -> str:
    taken = keys_of(data)
    ignored = [name for name in names_of(data) if name not in taken]
    words = f"gives {', '.join(taken)}" if taken else "gives no key"
    return f"{words}; ignored: {', '.join(ignored)}" if ignored else words
