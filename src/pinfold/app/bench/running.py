"""The benches by name, and how each is run."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import anyio

from pinfold.app.bench.ladder import SIZES, TOOLS, Rung, climb, prompt_size
from pinfold.app.bench.live import Lived
from pinfold.app.bench.measuring import measure
from pinfold.app.bench.report import Offered, Report, Rule
from pinfold.app.bench.sets import PUBLIC, SETS, SetName, task_set
from pinfold.app.bench.weighing import tokens, tool_text
from pinfold.app.errors import ConfigError

BENCHES = ("tokens",)
T = TypeVar("T")
_AT_ONCE = 3
"""Sessions that are played side by side."""
Progress = Callable[[str, int, int], None]
"""What was done, how much of it, and how much there is."""


def _quiet(_what: str, _done: int, _all: int) -> None:
    pass


async def tokens_of_tasks(
    names: Sequence[str] = (),
    progress: Progress = _quiet,
    rule: Rule = "closed",
    of: Sequence[SetName] = SETS,
) -> Report:
    """All tasks of some sets, or those named; the sizes of data and the numbers of tools only with all of the public one."""
    sets = {name: task_set(name) for name in of}
    tools = {name: one.new_tools() for name, one in sets.items()}
    every = [task.name for one in sets.values() for task in one.tasks]
    for name in names:
        if name not in every:
            near = get_close_matches(name, every, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"no task is called {name!r}{hint}")
    jobs = [
        partial(measure, task, within=one, answers=rule == "answered")
        for one in sets.values()
        for task in one.tasks
        if not names or task.name in names
    ]
    with _nobodys_configuration():
        rows = await _side_by_side(jobs, "playing tasks", progress)
        sizes: list[Rung | None] = []
        prompts: dict[int, int] = {}
        if not names and "public" in of:
            sizes = await _side_by_side([partial(climb, size) for size in SIZES], "reading logs", progress)
            prompts = {number: await prompt_size(number) for number in TOOLS}
    return Report(
        rows=rows,
        sets=tuple(of),
        offered={
            name: Offered(len(tools[name]), sum(tokens(tool_text(tool.schema)) for tool in tools[name]))
            for name in of
        },
        sizes=[rung for rung in sizes if rung],
        prompts=prompts,
        rule=rule,
    )


async def _side_by_side(jobs: Sequence[Callable[[], Awaitable[T]]], what: str, progress: Progress) -> list[T]:
    """Their results in order; while one waits for its sandbox another goes on."""
    done: dict[int, T] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def do(place: int) -> None:
        async with limiter:
            progress(what, len(done), len(jobs))
            done[place] = await jobs[place]()

    async with anyio.create_task_group() as tasks:
        for place in range(len(jobs)):
            tasks.start_soon(do, place)
    return [done[place] for place in range(len(jobs))]


async def tokens_live(names: Sequence[str] = (), progress: Progress = _quiet) -> Report:
    """Some tasks by script, and by the model of this machine. Raises ModelError where there is none."""
    from pinfold.app.bench.live import TASKS as LIVE
    from pinfold.app.bench.live import live

    report = await tokens_of_tasks(names or LIVE, progress, of=["public"])
    chosen = [task for task in PUBLIC.tasks if task.name in (names or LIVE)]
    lived: list[Lived] = []
    for place, task in enumerate(chosen):
        progress("asking the model", place, len(chosen))
        lived.append(await live(task))
    return replace(report, lived=lived)


async def tokens_of_bfcl(folder: Path, progress: Progress = _quiet, rule: Rule = "closed") -> Report:
    """The public multi-turn set, whole, from a copy of it."""
    from pinfold.app.bench.bfcl import measured

    with _nobodys_configuration():
        return await measured(folder, progress, rule)


@contextmanager
def _nobodys_configuration() -> Generator[None]:
    """The user's own tools, rules and servers are not what is measured."""
    with TemporaryDirectory(prefix="pinfold-bench-") as empty:
        before = os.environ.get("XDG_CONFIG_HOME")
        os.environ["XDG_CONFIG_HOME"] = empty
        try:
            yield
        finally:
            if before is None:
                del os.environ["XDG_CONFIG_HOME"]
            else:
                os.environ["XDG_CONFIG_HOME"] = before
