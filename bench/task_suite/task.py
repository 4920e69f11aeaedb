"""A task: what is asked, which files lie there, and whether what came of it is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Literal, get_args

Half = Literal["dev", "test"]
"""`test` is never looked at by whoever tunes."""
Kind = Literal[
    "csv",
    "json",
    "logs",
    "arithmetic",
    "strings",
    "plots",
    "edits",
    "chat",
    "clock",
    "listing",
    "algorithms",
    "units",
    "text",
    "several",
    "scripts",
    "mbpp",
    "questions",
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an agent left behind."""

    prompt: str
    answer: str
    workspace: Path
    actions: int
    """Pieces of code that ran before the answer; what only delivers the answer does not count."""
    began: datetime
    ended: datetime


Check = Callable[[Outcome], str | None]
"""None if solved, else why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    prompt: str
    check: Check
    oracle: str
    """A program that does the task in the workspace; what it prints is the answer."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    copies: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Files from elsewhere, by the name they get."""
    changes: frozenset[str] = frozenset()
    """Files of `files` that the task changes. All others must stay as they are."""
    wrong: tuple[str, ...] = ()
    """Answers one might plausibly give, which must be refused."""
    slips: tuple[str, ...] = ()
    """Programs that almost do the task; what they leave must be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    id: str
    kind: Kind
    half: Half
    scene: Scene

    @property
    def prompt(self) -> str:
        return self.scene.prompt

    def lay(self, workspace: Path) -> None:
        """The task's files, put into an empty folder."""
        for name, content in self._contents():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def check(self, outcome: Outcome) -> str | None:
        for name, content in self._contents():
            path = outcome.workspace / name
            if name in self.scene.changes:
                continue
            if not path.is_file() or path.read_bytes() != content:
                return f"{name} was changed or removed"
        return self.scene.check(outcome)

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        yield from ((name, content.encode()) for name, content in self.scene.files.items())
        yield from ((name, path.read_bytes()) for name, path in self.scene.copies.items())


class Tasks:
    """Collects one half: each function makes the scene of one task, from a generator seeded by the task's id."""

    def __init__(self, half: Half) -> None:
        self._half: Half = half
        self.all: list[Task] = []

    def of(self, kind: Kind) -> Callable[[Callable[[Random], Scene]], Callable[[Random], Scene]]:
        def take(make: Callable[[Random], Scene]) -> Callable[[Random], Scene]:
            name = f"{self._half}-{make.__name__.replace('_', '-')}"
            assert all(task.id != name for task in self.all), f"two tasks are called {name}"
            self.all.append(Task(id=name, kind=kind, half=self._half, scene=make(Random(name))))
            return make

        return take


def program(source: str) -> str:
    """Source written as an indented block."""
    return dedent(source).strip() + "\n"


def table(header: str, rows: list[tuple[object, ...]]) -> str:
    """CSV without quoting: no field holds a comma."""
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"
