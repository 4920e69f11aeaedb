"""The same questions about ever more data, and the same prompt over ever more tools."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from pinfold.app.bench.baselines import data_in_prompt
from pinfold.app.bench.data import text
from pinfold.app.bench.oracle import Move
from pinfold.app.bench.playing import play
from pinfold.app.bench.servers import more_tools
from pinfold.app.bench.task import Seen, Task, Turn
from pinfold.app.bench.weighing import Weight, tokens, tokens_of_lines, weigh

SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
TOOLS = (10, 100, 500)
_BLOCK = 10_000
_WRITTEN = 10_000_000
"""Bytes at a time."""
_FILE = "/mnt/datasets/service.log"
_TASK = Task(
    name="a log of any size",
    domain="logs",
    turns=(
        Turn(asks="How many errors are in service.log?", does="print()", says="{0} lines are errors."),
        Turn(asks="Which component has the most of them?", does="print()", says="{0}, with {1}."),
        Turn(asks="And how many requests took 900 ms?", does="print()", says="{0}."),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    bytes: int
    data: int
    """Tokens."""
    pinfold: Weight
    once: Weight
    resent: Weight
    problems: tuple[str, ...] = ()


async def climb(size: int) -> Rung | None:
    """None where there is no room for so large a file."""
    if shutil.disk_usage(gettempdir()).free < 1.5 * size:
        return None
    block = text("service", _BLOCK)
    times = round(size / len(block))
    facts = _facts(block, times)
    data = tokens("service.log:\n") + tokens_of_lines(block, times)
    with _written(block, times) as path:
        played = await play(_TASK, _moves(facts), (), data={"service.log": path})
    once, resent = data_in_prompt(_TASK, facts, data)
    return Rung(
        bytes=len(block) * times,
        data=data,
        pinfold=played.weight,
        once=once,
        resent=resent,
        problems=tuple(played.problems),
    )


@contextmanager
def _written(block: str, times: int) -> Generator[Path]:
    """Really there: block after block, as large as it is said to be."""
    with TemporaryDirectory(prefix="pinfold-bench-") as folder:
        path = Path(folder) / "service.log"
        at_once = max(1, _WRITTEN // len(block))
        with path.open("wb") as file:
            for begun in range(0, times, at_once):
                file.write(block.encode() * min(at_once, times - begun))
        path.chmod(0o644)
        Path(folder).chmod(0o755)
        yield path


def _facts(block: str, times: int) -> list[Seen]:
    lines = [line.split() for line in block.splitlines()]
    errors: dict[str, int] = {}
    for line in lines:
        if line[1] == "ERROR":
            errors[line[2]] = errors.get(line[2], 0) + times
    worst = max(sorted(errors), key=lambda name: errors[name])
    slow = times * sum(line[6] == "900" for line in lines)
    return [(str(sum(errors.values())),), (worst, str(errors[worst])), (str(slow),)]


def _moves(facts: list[Seen]) -> list[Move]:
    commands = (
        (f"head -3 {_FILE}", f"grep -c ' ERROR ' {_FILE}"),
        (
            f"grep ' ERROR ' {_FILE} | awk '{{n[$3]++}} END {{for (c in n) print n[c], c}}' | sort -k1,1nr -k2,2 | head -1",
        ),
        (f"grep -c ' took 900 ms' {_FILE}",),
    )
    return [
        Move(cells=cells, says=turn.says.format(*known), facts=known, answers=False, tool="shell")
        for turn, cells, known in zip(_TASK.turns, commands, facts, strict=True)
    ]


async def prompt_size(number: int) -> int:
    """Tokens of the first request of a session that has so many tools of servers."""
    task = Task(name="hello", domain="", turns=(Turn(asks="Hello", does="print()", says="Hello"),))
    move = Move(cells=(), says="Hello", facts=(), answers=False)
    played = await play(task, [move], more_tools(number))
    return weigh([(played.exchanges[0][0], 0)]).input
