"""The same questions about ever more data, and the same prompt over ever more tools."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from bench.tokens.baselines import data_in_prompt
from bench.tokens.data import text
from bench.tokens.o200k import tokens
from bench.tokens.player import play
from bench.tokens.script import Move
from bench.tokens.servers import more_tools
from bench.tokens.task import Facts, Task, Turn
from bench.tokens.weight import Weight, tokens_of_lines, weigh

SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
TOOLS = (10, 100, 500)
_BLOCK = 10_000
_WRITE = 10_000_000
"""Bytes written at a time."""
_FILE = "/mnt/datasets/service.log"
_TURNS = (
    ("How many errors are in service.log?", "{0} lines are errors."),
    ("Which component has the most of them?", "{0}, with {1}."),
    ("And how many requests took 900 ms?", "{0}."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    bytes: int
    data: int
    """Tokens."""
    pinfold: Weight
    once: Weight
    resent: Weight
    problems: tuple[str, ...] = ()


async def measure_size(size: int) -> SizeRow | None:
    """None where there is no room for so large a file."""
    if shutil.disk_usage(gettempdir()).free < 1.5 * size:
        return None
    block = text("service", _BLOCK)
    times = round(size / len(block))
    task = _task(block, times)
    data = tokens("service.log:\n") + tokens_of_lines(block, times)
    with _write_log(block, times) as path:
        played = await play(task, _plan_moves(task), (), data={"service.log": path})
    once, resent = data_in_prompt(task, data)
    return SizeRow(
        bytes=len(block) * times,
        data=data,
        pinfold=played.weight,
        once=once,
        resent=resent,
        problems=tuple(played.problems),
    )


@contextmanager
def _write_log(block: str, times: int) -> Generator[Path]:
    with TemporaryDirectory(prefix="pinfold-bench-") as folder:
        path = Path(folder) / "service.log"
        at_once = max(1, _WRITE // len(block))
        with path.open("wb") as file:
            for begun in range(0, times, at_once):
                file.write(block.encode() * min(at_once, times - begun))
        path.chmod(0o644)
        Path(folder).chmod(0o755)
        yield path


def _task(block: str, times: int) -> Task:
    lines = [line.split() for line in block.splitlines()]
    errors: dict[str, int] = {}
    for line in lines:
        if line[1] == "ERROR":
            errors[line[2]] = errors.get(line[2], 0) + times
    worst = max(sorted(errors), key=lambda name: errors[name])
    slow = times * sum(line[6] == "900" for line in lines)
    facts: tuple[Facts, ...] = ((str(sum(errors.values())),), (worst, str(errors[worst])), (str(slow),))
    turns = tuple(
        Turn(asks=asks, does="print()", says=says, facts=known)
        for (asks, says), known in zip(_TURNS, facts, strict=True)
    )
    return Task(name="a log of any size", domain="logs", turns=turns)


def _plan_moves(task: Task) -> list[Move]:
    commands = (
        (f"head -3 {_FILE}", f"grep -c ' ERROR ' {_FILE}"),
        (
            f"grep ' ERROR ' {_FILE} | awk '{{n[$3]++}} END {{for (c in n) print n[c], c}}' | sort -k1,1nr -k2,2 | head -1",
        ),
        (f"grep -c ' took 900 ms' {_FILE}",),
    )
    return [
        Move(cells=cells, says=turn.answer, facts=turn.facts, answers=False, tool="shell")
        for turn, cells in zip(task.turns, commands, strict=True)
    ]


async def prompt_size(number: int) -> int:
    """Tokens of the first request of a session that has so many tools of servers."""
    task = Task(name="hello", domain="", turns=(Turn(asks="Hello", does="print()", says="Hello"),))
    move = Move(cells=(), says="Hello", facts=(), answers=False)
    played = await play(task, [move], more_tools(number))
    return weigh([(played.exchanges[0][0], 0)]).input
