"""Measures one task: Pinfold as it is, and what it is compared with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from bench.tokens.baselines import OBSERVATION, Baseline, data_in_prompt, data_text, weigh_json_calls
from bench.tokens.o200k import tokens
from bench.tokens.player import play
from bench.tokens.script import Hints, Search, plan_moves
from bench.tokens.task import SetName, Task, TaskSet
from bench.tokens.weight import Weight

from pinfold.tools import SHOWN, Registry, Tool
from pinfold.tools.search import LIMIT, search

RowSet: TypeAlias = SetName | Literal["bfcl"]
WINDOW = 1_000_000
"""Tokens that a model can be given at most: data beyond that cannot be put into a prompt, and is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a task took."""

    task: str
    set: RowSet
    domain: str
    turns: int
    pinfold: Weight
    baselines: dict[Baseline, Weight] = field(default_factory=dict[Baseline, Weight])
    data: int = 0
    """Tokens of its files."""
    problems: tuple[str, ...] = ()

    def saving(self, baseline: Baseline) -> float:
        return 1 - self.pinfold.total / self.baselines[baseline].total


def hints_and_search(tools: Sequence[Tool[..., Any]]) -> tuple[Hints, Search]:
    """As the product gives them: lines on tools with a message, and those that a search finds."""
    registry = Registry()
    registry.show(SHOWN)
    by: dict[str, list[Tool[..., Any]]] = {}
    for tool in tools:
        by.setdefault(tool.server, []).append(tool)
    for server, some in by.items():
        registry.put(server, some)
    given: set[str] = set()

    def hints(text: str, used: Collection[str]) -> list[str]:
        lines = registry.fitting(text, without=given, used=used)
        given.update(lines)
        return lines

    return hints, lambda words: search(words, tools, LIMIT)


async def measure(task: Task, within: TaskSet, *, answers: bool = False) -> Row:
    """`answers`: code ends a turn with `answer(...)` where the task says it can; else the model does, as the others' do."""
    tools = within.new_tools()
    hints, search_tools = hints_and_search(tools)
    moves = plan_moves(task, tools, hints=hints, search=search_tools, answers=answers)
    played = await play(task, moves, tools)
    problems = list(played.problems)
    baselines: dict[Baseline, Weight] = {}
    data = 0
    if task.kind == "tools":
        weights, results = await weigh_json_calls(task, played.calls, within.new_tools())
        baselines |= weights
        problems += [f"a result was cut: {result[:80]}" for result in results if len(result) >= OBSERVATION]
    else:
        data = sum(map(tokens, data_text(task)))
        if data <= WINDOW:
            once, resent = data_in_prompt(task, data)
            baselines |= {"data_once": once, "data_resent": resent}
    return Row(
        task=task.name,
        set=within.name,
        domain=task.domain,
        turns=len(task.turns),
        pinfold=played.weight,
        baselines=baselines,
        data=data,
        problems=tuple(problems),
    )
