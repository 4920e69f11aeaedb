"""The sets of tasks by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias, assert_never, get_args

from pinfold.app.bench.servers import new_tools
from pinfold.app.bench.task import Seen, Task
from pinfold.app.bench.tasks import TASKS
from pinfold.tools import Tool

SetName: TypeAlias = Literal["public", "held-out"]
SETS: tuple[SetName, ...] = get_args(SetName)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    name: SetName
    tasks: tuple[Task, ...]
    new_tools: Callable[[], list[Tool[..., Any]]]
    """All of them, over servers nobody has touched."""
    folder: str
    """The package where its facts lie."""

    def facts(self) -> dict[str, list[Seen]]:
        """What the answers hold, turn by turn, by the name of the task."""
        return _facts(self.folder)


PUBLIC = TaskSet(name="public", tasks=TASKS, new_tools=new_tools, folder="pinfold.app.bench")


def task_set(name: SetName) -> TaskSet:
    match name:
        case "public":
            return PUBLIC
        case "held-out":
            from pinfold.app.bench import held_out

            return TaskSet(
                name=name, tasks=held_out.TASKS, new_tools=held_out.new_tools, folder=held_out.__name__
            )
        case _:
            assert_never(name)


@cache
def _facts(folder: str) -> dict[str, list[Seen]]:
    found = json.loads((files(folder) / "facts.json").read_text(encoding="utf-8"))
    return {name: [tuple(seen) for seen in turns] for name, turns in found.items()}
