"""Formats of project files, and descriptions of what each would do, for the user who decides about trust.

Of `.env` only keys of model providers are used. Whatever a file starts or calls is described in full.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from msgspec import Struct

from pinfold.text import pluralize, redact

FOLDER = ".agents/commands"
_KEY = r"([A-Za-z][A-Za-z-]*)\s*:\s*(.*)"


class UserCommand(Struct, frozen=True, kw_only=True):
    name: str
    text: str
    words: str = ""
    """Description."""
    hint: str = ""
    """Description of the arguments."""
    origin: str = ""


def parse_command(name: str, data: bytes, origin: str) -> UserCommand:
    """Parse a command file with optional front matter."""
    fields, text = split_front_matter(data)
    words = fields.get("description") or text.split("\n", 1)[0].lstrip("# ")
    return UserCommand(name=name, text=text, words=words, hint=fields.get("argument-hint", ""), origin=origin)


AGENTS = ".agents/agents"


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """A sub-agent defined by a project or the user."""

    name: str
    prompt: str
    description: str = ""
    tools: tuple[str, ...] | None = None
    """Names or patterns of the only tools it gets; None for all tools of the agent that starts it."""
    model: str = ""


def parse_agent(name: str, data: bytes) -> AgentDefinition:
    """Parse a definition. `name` is the file's, used if the definition has none."""
    fields, text = split_front_matter(data)
    tools = tuple(filter(None, re.split(r"[,\s\[\]\"']+", fields["tools"]))) if "tools" in fields else None
    return AgentDefinition(
        name=fields.get("name") or name,
        prompt=text,
        description=fields.get("description", ""),
        tools=tools,
        model=fields.get("model", ""),
    )


def split_front_matter(data: bytes) -> tuple[dict[str, str], str]:
    """Return the fields between the `---` lines at the start, by name, and the text after them."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\r\n", "\n")
    fields: dict[str, str] = {}
    lines = text.split("\n")
    if lines[0].rstrip() == "---":
        end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
        if end is not None:
            for line in lines[1:end]:
                if known := re.fullmatch(_KEY, line.rstrip()):
                    value = known[2].strip()
                    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
                    fields[known[1].lower()] = value[1:-1] if quoted else value
            text = "\n".join(lines[end + 1 :])
    return fields, text.strip()


_LINE = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*"
# Nothing else is taken: an address, folder or setting could send the user's key, or everything, elsewhere.
_PROVIDER_KEY = r"(?!PINFOLD_)[A-Z][A-Z0-9_]*_API_KEY|HF_TOKEN"


def keys_of(data: bytes) -> dict[str, str]:
    """Return the provider keys in a `.env` file; nothing else in it is used."""
    return {name: value for name, value in _variables(data) if value and re.fullmatch(_PROVIDER_KEY, name)}


def names_of(data: bytes) -> tuple[str, ...]:
    """Return the names of all variables in a `.env` file."""
    return tuple(dict.fromkeys(name for name, _ in _variables(data)))


def _variables(data: bytes) -> Iterator[tuple[str, str]]:
    for line in data.decode("utf-8", "replace").splitlines():
        if found := re.fullmatch(_LINE, line):
            yield found[1], _variable_value(found[2])


def _variable_value(text: str) -> str:
    for quote in "\"'":
        if len(text) > 1 and text.startswith(quote) and (end := text.find(quote, 1)) > 0:
            return text[1:end]
    return re.split(r"\s#", text, maxsplit=1)[0].strip()


_FIRST = 60
"""Characters quoted of a file's first line."""


def summarize_effects(name: str, data: bytes, workspace: Path) -> tuple[str, ...]:
    """Describe in lines what a file would do. They hold no secrets, but must be made printable before printing."""
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
            return _summarize_variables(data)
        case _ if name.startswith(f"{FOLDER}/"):
            return f"adds a command: {parse_command(name, data, '').words[:_FIRST]}"
        case _ if name.startswith(".agents/skills/") and name.endswith("/SKILL.md"):
            return f"adds a skill: {parse_command(name, data, '').words[:_FIRST]}"
        case _ if name.startswith(f"{AGENTS}/"):
            return f"adds a sub-agent: {parse_agent(name, data).description[:_FIRST] or first}"
        case _:
            return f"tells the model when it is asked for: {first}"


def _settings(text: str) -> str:
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return "nothing: it is not valid TOML"
    keys: dict[str, object] = {}
    for section, content in parsed.items():
        fields: dict[str, object] = cast("dict[str, object]", content) if isinstance(content, dict) else {}
        fields = fields or {"": content}
        keys |= {f"{section}.{key}".rstrip("."): value for key, value in fields.items()}
    # Show each value in full: a list may name packages.
    shown = (f"{key} = {redact(json.dumps(value, default=str, ensure_ascii=False))}" for key, value in keys.items())
    return ", ".join(shown) or "nothing"


def _servers(data: bytes, origin: str) -> tuple[str, ...]:
    from pinfold.app.trust.mcp_reach import apply_reach, describe_server
    from pinfold.tools.mcp.spec import read_servers

    specs, faults = read_servers(data, origin)
    lines = [line for spec in specs for line in describe_server(apply_reach(spec))]
    lines += [f"not understood: {fault}" for fault in faults]
    return (f"names {pluralize('MCP server', len(specs))}:", *(f"    {line}" for line in lines))


def _summarize_variables(data: bytes) -> str:
    taken = keys_of(data)
    ignored = [name for name in names_of(data) if name not in taken]
    words = f"gives {', '.join(taken)}" if taken else "gives no key"
    return f"{words}; ignored: {', '.join(ignored)}" if ignored else words
