"""A task: what the user says, and what an agent that makes no detour does about it. Tasks are TOML files in `tasks/`."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from bench.tokens.servers import held_out_tools, public_tools

from bench.tokens import data
from pinfold.events import convert
from pinfold.tools import Tool

Kind: TypeAlias = Literal["tools", "data"]
Facts: TypeAlias = tuple[str, ...]
"""What the code of a turn finds out, as the answer says it."""
SetName: TypeAlias = Literal["public", "held-out"]
SETS: tuple[SetName, ...] = get_args(SetName)


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asks: str
    looks: tuple[str, ...] = ()
    """Code that looks around first: for tools, at data, or in vain."""
    does: str
    """Code that does it. Its last line prints what the answer needs to know."""
    says: str
    """The answer; `{0}` is the first thing printed."""
    reads: bool = False
    """The answer takes judgement: what was printed must be read first."""
    facts: Facts = ()

    @property
    def cells(self) -> tuple[str, ...]:
        return (*self.looks, self.does)

    @property
    def answer(self) -> str:
        return self.says.format(*self.facts)

    @property
    def printed(self) -> tuple[str, ...]:
        """The expressions of the last line, as source."""
        match ast.parse(self.does).body[-1]:
            case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)):
                return tuple(ast.unparse(one) for one in args)
            case _:
                raise ValueError(f"the last line prints nothing: {self.does!r}")


class DataFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str
    bytes: int

    @property
    def text(self) -> str:
        return data.text(self.kind, self.bytes)


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    domain: str
    turns: tuple[Turn, ...] = msgspec.field(name="turn")
    servers: tuple[str, ...] = ()
    """Those it needs; the others are there all the same."""
    files: dict[str, DataFile] = {}
    """What lies in the workspace."""

    @property
    def kind(self) -> Kind:
        return "data" if self.files else "tools"


class TaskSet(msgspec.Struct, frozen=True, kw_only=True):
    name: SetName
    tasks: tuple[Task, ...]
    new_tools: Callable[[], list[Tool[..., Any]]]
    """All of them, over new servers."""


@cache
def task_set(name: SetName) -> TaskSet:
    folder = Path(__file__).parent / "tasks" / name.replace("-", "_")
    tasks = tuple(task for path in sorted(folder.glob("*.toml")) for task in _read_tasks(path))
    return TaskSet(name=name, tasks=tasks, new_tools=public_tools if name == "public" else held_out_tools)


def _read_tasks(path: Path) -> list[Task]:
    return convert(tomllib.loads(path.read_text(encoding="utf-8"))["task"], list[Task])
