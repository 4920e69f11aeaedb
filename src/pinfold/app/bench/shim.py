"""The package `servers` as files, for a session whose guest does not make it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pinfold.tools import Tool

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
_SEARCH = '''
class Found(list):
    def __repr__(self): return "\\n".join(self)
    __str__ = __repr__
def _words(text):
    return {re.sub(r"(ing|ed|es|s)$", "", w) for w in re.findall("[a-z]+", text.lower()) if len(w) > 1}
def search(words="", limit=8):
    wanted = _words(words)
    scored = [(sum(1 / count[w] * (3 if w in name else 1) for w in wanted & all), line) for line, name, all in tools]
    return Found(line for score, line in sorted(scored, key=lambda one: -one[0])[:limit] if score)
'''


def put_servers(workspace: Path, tools: Sequence[Tool[..., Any]]) -> None:
    folder = workspace / "servers"
    folder.mkdir()
    by: dict[str, list[str]] = {}
    lines: list[str] = []
    for tool in tools:
        name = tool.name.rpartition(".")[2]
        lines.append(f"{tool.server}.{name}({signature(tool)})  {tool.description.partition('. ')[0].rstrip('.')}.")
        by.setdefault(tool.server, []).append(
            f"def {name}(**args):\n    {lines[-1]!r}\n    return call({tool.name!r}, **args)\n"
        )
    head = f"import re, collections\nlines = {lines!r}\n"
    index = "def _split(line):\n    name = line.partition('(')[0]\n    return line, _words(name), _words(line)\n"
    tail = "tools = [_split(line) for line in lines]\ncount = collections.Counter(w for one in tools for w in one[2])\n"
    (folder / "__init__.py").write_text(head + _SEARCH + index + tail)
    for server, parts in by.items():
        (folder / f"{server}.py").write_text("from _pinfold_guest.calls import call\n" + "\n".join(parts))


def signature(tool: Tool[..., Any]) -> str:
    parameters = tool.schema.parameters
    required = parameters.get("required", ())
    parts: list[str] = []
    for name, schema in parameters.get("properties", {}).items():
        kind = _kind(schema)
        parts.append(f"{name}: {kind}" + ("" if name in required else f" = {schema.get('default')!r}"))
    return re.sub(r"\s+", " ", ", ".join(parts))


def _kind(schema: Any) -> str:
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_kind(one) for one in schema["anyOf"] if one.get("type") != "null")
    return _TYPES.get(schema.get("type", ""), "Any")
