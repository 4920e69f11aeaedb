"""What a task of the bench is: what the user says, and what an agent that makes no detour does about it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["tools", "data"]
Seen: TypeAlias = tuple[str, ...]
"""What the code of a turn found out, as the answer says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    asks: str
    looks: tuple[str, ...] = ()
    """Code that looks around first: for tools, at data, or in vain."""
    does: str
    """Code that does it. Its last line prints what the answer needs to know."""
    says: str
    """The answer; `{0}` is the first thing printed."""
    reads: bool = False
    """The answer takes judgement: what was printed must be read first."""

    @property
    def cells(self) -> tuple[str, ...]:
        return (*self.looks, self.does)

    @property
    def printed(self) -> tuple[str, ...]:
        """The expressions of the last line, as source."""
        match ast.parse(self.does).body[-1]:
            case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)):
                return tuple(ast.unparse(one) for one in args)
            case _:
                raise ValueError(f"the last line prints nothing: {self.does!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    name: str
    domain: str
    turns: tuple[Turn, ...]
    servers: tuple[str, ...] = ()
    """Those it needs; the others are there all the same."""
    files: Mapping[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    """What lies in the workspace, made when it is wanted."""

    @property
    def kind(self) -> Kind:
        return "data" if self.files else "tools"
