"""What a model that makes no detour writes for a task: the code of each turn, with what it must look up first.

It calls no tool that it was not told of: with the message, or by a search that it makes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.tokens.task import Facts, Task, Turn

from pinfold.model import KeptCall, KeptReply
from pinfold.tools import Tool

Search = Callable[[str], Sequence[str]]
"""Lines on the tools that a text finds."""
Hints = Callable[[str, Collection[str]], Sequence[str]]
"""Lines on the tools that fit a text, given the servers used before."""
_NAMED = re.compile(r"^(\w+\.\w+)\(", re.MULTILINE)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A turn as it is played."""

    cells: tuple[str, ...]
    says: str
    facts: Facts
    answers: bool
    """The last cell tells the user; else the model does, in one more reply."""
    tool: Literal["python", "shell"] = "python"

    def replies(self) -> list[KeptReply]:
        name = "code" if self.tool == "python" else "command"
        lines = [KeptReply(calls=(KeptCall(tool=self.tool, args={name: cell}),)) for cell in self.cells]
        return lines if self.answers else [*lines, KeptReply(text=self.says)]


def plan_moves(
    task: Task, tools: Sequence[Tool[..., Any]], *, hints: Hints, search: Search, answers: bool = False
) -> list[Move]:
    """`hints` are what the product tells with a message, `search` is what it finds; `answers`: code ends a turn if it can."""
    local = _local(task, tools)
    shown: set[str] = set()
    imported: set[str] = set()
    servers: set[str] = set()
    made: list[Move] = []
    for turn in task.turns:
        shown |= names_in("\n".join(hints(turn.asks, servers)))
        used = [local[name] for cell in turn.cells for name in _calls(cell) if name in local]
        servers |= {name.rpartition(".")[0] for name in used}
        unknown = [name for name in dict.fromkeys(used) if name not in shown]
        looked: list[str] = []
        for words in _queries(unknown, search):
            shown |= names_in("\n".join(search(words)))
            first = "" if "servers" in imported else "import servers\n"
            looked.append(f'{first}servers.search("{words}")')
            imported.add("servers")
        ends = answers and not turn.reads
        cells = (*turn.looks, _end_with_answer(turn) if ends else turn.does)
        made.append(
            Move(
                cells=(*looked, *(_with_imports(cell, local, imported) for cell in cells)),
                says=turn.answer,
                facts=turn.facts,
                answers=ends,
            )
        )
    return made


def _local(task: Task, tools: Sequence[Tool[..., Any]]) -> dict[str, str]:
    """Tools of the task by the names that its code calls them, but for those it has from elsewhere."""
    taken = {
        alias.asname or alias.name
        for turn in task.turns
        for cell in turn.cells
        for node in ast.walk(ast.parse(cell))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    named = {tool.name.rpartition(".")[2]: tool.name for tool in tools if tool.server in task.servers}
    return {local: name for local, name in named.items() if local not in taken}


def names_in(text: str) -> set[str]:
    """Tools that a hint or a search tells of."""
    return set(_NAMED.findall(text))


def calls_in(code: str) -> set[str]:
    """Tools that it imports, as `server.tool`."""
    return {
        f"{node.module.removeprefix('servers.')}.{alias.name}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("servers.")
        for alias in node.names
    }


def _queries(unknown: Sequence[str], search: Search) -> list[str]:
    """One search in words for all that is not known, and one by name for each that it does not find."""
    if not unknown:
        return []
    words = ", ".join(" ".join(_PARTS.findall(name.rpartition(".")[2])).lower() for name in unknown)
    found = names_in("\n".join(search(words)))
    return [words, *(name.rpartition(".")[2] for name in unknown if name not in found)]


def _calls(code: str) -> list[str]:
    """In the order they are written."""
    found = [
        (node.lineno, node.col_offset, node.func.id)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return [name for *_, name in sorted(found)]


def _with_imports(code: str, local: dict[str, str], imported: set[str]) -> str:
    by: dict[str, list[str]] = {}
    for name in dict.fromkeys(_calls(code)):
        if name in local and name not in imported:
            by.setdefault(local[name].rpartition(".")[0], []).append(name)
            imported.add(name)
    return "".join(f"from servers.{server} import {', '.join(names)}\n" for server, names in by.items()) + code


def _end_with_answer(turn: Turn) -> str:
    """The same code, but that its last line tells the user."""
    printed = list(turn.printed)
    last = ast.parse(turn.does).body[-1]
    lines = turn.does.splitlines()[: last.lineno - 1]
    for place, one in enumerate(printed):
        if "\\" in one or '"' in one or one.startswith("{"):  # has no place in an f-string
            lines.append(f"result = {one}")
            printed[place] = "result"
    text = turn.says.format(*(f"{{{one}}}" for one in printed))
    ending = f'answer(f"{text}")' if "{0" in turn.says else f"answer({text!r})"
    code = "\n".join([*lines, ending])
    ast.parse(code)
    return code
