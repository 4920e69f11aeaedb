"""Measures one task after the other: Pinfold as it is, and what it is compared with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from pinfold.app.bench.baselines import OBSERVATION, data_in_prompt, data_text, json_calls, steps_of
from pinfold.app.bench.oracle import Hints, Told, moves
from pinfold.app.bench.playing import Played, play
from pinfold.app.bench.sets import PUBLIC, SetName, TaskSet
from pinfold.app.bench.task import Seen, Task
from pinfold.app.bench.weighing import Weight, tokens
from pinfold.tools import Registry, Tool
from pinfold.tools.searching import LIMIT, search

Baseline: TypeAlias = Literal[
    "json_calls_all_tools", "json_calls_needed_tools", "json_calls_called_tools", "data_resent", "data_once"
]
RowSet: TypeAlias = SetName | Literal["bfcl"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
WINDOW = 1_000_000
"""Tokens that a model can be given at most: data beyond that cannot be put into a prompt, and is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a task took."""

    task: str
    set: RowSet
    domain: str
    kind: str
    turns: int
    pinfold: Weight
    baselines: dict[Baseline, Weight] = field(default_factory=dict[Baseline, Weight])
    data: int = 0
    """Tokens of its files."""
    problems: tuple[str, ...] = ()

    def saving(self, baseline: Baseline) -> float:
        return 1 - self.pinfold.total / self.baselines[baseline].total


def told_by(tools: Sequence[Tool[..., Any]]) -> tuple[Hints, Told]:
    """What the product tells of these tools with a message, and what it finds in a search."""
    registry = Registry()
    by: dict[str, list[Tool[..., Any]]] = {}
    for tool in tools:
        by.setdefault(tool.server, []).append(tool)
    for server, some in by.items():
        registry.put(server, some)
    told: set[str] = set()

    def hints(text: str, used: Collection[str]) -> list[str]:
        lines = registry.fitting(text, without=told, used=used)
        told.update(lines)
        return lines

    return hints, lambda words: search(words, tools, LIMIT)


async def measure(task: Task, *, within: TaskSet = PUBLIC, answers: bool = False) -> Row:
    """`answers`: code ends a turn with `answer(...)` where the task says it can; else the model does, as the others' do."""
    known = within.facts()[task.name]
    tools = within.new_tools()
    hints, finds = told_by(tools)
    played = await play(task, moves(task, known, tools, hints=hints, search=finds, answers=answers), tools)
    problems = list(played.problems)
    baselines: dict[Baseline, Weight] = {}
    data = 0
    if task.kind == "tools":
        baselines |= await _without_code(task, known, within.new_tools(), played, problems)
    else:
        data = sum(map(tokens, data_text(task)))
        if data <= WINDOW:
            once, resent = data_in_prompt(task, known, data)
            baselines |= {"data_once": once, "data_resent": resent}
    return Row(
        task=task.name,
        set=within.name,
        domain=task.domain,
        kind=task.kind,
        turns=len(task.turns),
        pinfold=played.weight,
        baselines=baselines,
        data=data,
        problems=tuple(problems),
    )


async def _without_code(
    task: Task,
    known: Sequence[Seen],
    tools: Sequence[Tool[..., Any]],
    played: Played,
    problems: list[str],
) -> dict[Baseline, Weight]:
    turns = [(turn.asks, calls) for turn, calls in zip(task.turns, played.calls, strict=True)]
    steps = await steps_of(turns, Registry(tools))
    results = [result for taken in steps for step in taken for result in step.results]
    problems += [f"a result was cut: {result[:80]}" for result in results if len(result) >= OBSERVATION]
    return {
        "json_calls_all_tools": json_calls(task, known, steps, tools, "all"),
        "json_calls_needed_tools": json_calls(task, known, steps, tools, "needed"),
        "json_calls_called_tools": json_calls(task, known, steps, tools, "called"),
    }
