"""Finds out the facts that the answers of the tasks hold, once, for `facts.json`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from pinfold.app.bench.oracle import moves
from pinfold.app.bench.playing import play
from pinfold.app.bench.sets import PUBLIC, TaskSet
from pinfold.app.bench.task import Seen, Task, Turn

_BETWEEN = "\x1f"


async def facts_of(task: Task, within: TaskSet = PUBLIC) -> Sequence[Seen]:
    """Raises RuntimeError where the code of the task does not work."""
    tools = within.new_tools()
    apart = replace(task, turns=tuple(map(_apart, task.turns)))
    nothing = [("",) * 9 for _ in task.turns]
    every = [f"{tool.name}(" for tool in tools]
    played = await play(
        apart,
        moves(apart, nothing, tools, hints=lambda _, __: every, search=lambda _: every, answers=False),
        tools,
    )
    facts: list[Seen] = []
    for turn, seen in zip(task.turns, played.seen, strict=True):
        found = tuple(seen.rstrip("\n").split(_BETWEEN))
        if len(found) != len(turn.printed):
            raise RuntimeError(f"{task.name}: {seen}")
        facts.append(found)
    return facts


def _apart(turn: Turn) -> Turn:
    last = ast.parse(turn.does).body[-1]
    lines = turn.does.splitlines()[: last.lineno - 1]
    line = f"print({', '.join(turn.printed)}, sep={_BETWEEN!r})"
    return replace(turn, does="\n".join([*lines, line]), says="")
