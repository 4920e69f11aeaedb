"""What a file of a workspace would do if it were obeyed, in one line each, for who has to decide."""

from __future__ import annotations

from typing import Any, cast

from pinfold.app.command_files import FOLDER, parsed
from pinfold.app.dotenv import keys_of, names_of
from pinfold.events import BadEvent, parse_json

_FIRST = 60
"""Characters of its first line that are quoted."""


def would_do(name: str, data: bytes) -> str:
    """`name` is its path from the workspace. Holds no secret, but may hold anything else: it is not fit to print as it is."""
    text = data.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0][:_FIRST] if lines else "nothing"
    match name.replace("../", ""):
        case "AGENTS.md" | "CLAUDE.md":
            return f"tells the model, in {len(lines)} lines: {first}"
        case "pinfold.toml":
            return f"sets {_settings(text)}"
        case ".mcp.json":
            return f"starts {_servers(text)}"
        case ".env":
            return _variables(data)
        case _ if name.startswith(f"{FOLDER}/"):
            return f"adds a command: {parsed(name, data, '').words[:_FIRST]}"
        case _ if name.startswith("tools/"):
            return f"adds a tool: {first}"
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
        keys += [f"{section}.{key}" for key in _fields(content)] or [section]
    return ", ".join(keys) or "nothing"


def _servers(text: str) -> str:
    try:
        parsed = parse_json(text)
    except BadEvent:
        return "nothing: it is not valid JSON"
    servers = _fields(_fields(parsed).get("mcpServers"))
    return ", ".join(_server(name, _fields(given)) for name, given in servers.items()) or "nothing"


def _fields(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _server(name: str, fields: dict[str, Any]) -> str:
    arguments = fields.get("args")
    where = [fields.get("command") or fields.get("url") or "nothing"]
    where += cast(list[Any], arguments) if isinstance(arguments, list) else []
    return f"{name} ({' '.join(map(str, where))})"


def _variables(data: bytes) -> str:
    taken = keys_of(data)
    ignored = [name for name in names_of(data) if name not in taken]
    words = f"gives {', '.join(taken)}" if taken else "gives no key"
    return f"{words}; ignored: {', '.join(ignored)}" if ignored else words
