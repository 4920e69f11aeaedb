"""Runs the tasks, and reports on them."""

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
from bench.tokens.live_model import TASKS as LIVE
from bench.tokens.live_model import LiveResult, run_live
from bench.tokens.measurement import RowSet, measure
from bench.tokens.o200k import tokens
from bench.tokens.report import Report, Rule, ToolCount
from bench.tokens.sizes import SIZES, TOOLS, SizeRow, measure_size, prompt_size
from bench.tokens.task import SETS, SetName, task_set
from bench.tokens.weight import tool_text

from bench.tokens import bfcl
from pinfold.app.errors import ConfigError

T = TypeVar("T")
_AT_ONCE = 3
"""Sessions that are played side by side."""
Progress = Callable[[str, int, int], None]
"""What is done, how much of it, and how much there is."""


def _quiet(_what: str, _done: int, _all: int) -> None:
    pass


async def measure_tasks(
    names: Sequence[str] = (), progress: Progress = _quiet, rule: Rule = "closed", of: Sequence[SetName] = SETS
) -> Report:
    """All tasks of some sets, or those named; the sizes of data and the numbers of tools only with all of the public one."""
    sets = [task_set(name) for name in of]
    every = [task.name for one in sets for task in one.tasks]
    for name in names:
        if name not in every:
            near = get_close_matches(name, every, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"no task is called {name!r}{hint}")
    jobs = [
        partial(measure, task, one, answers=rule == "answered")
        for one in sets
        for task in one.tasks
        if not names or task.name in names
    ]
    sizes: list[SizeRow | None] = []
    prompts: dict[int, int] = {}
    with _empty_configuration():
        rows = await _gather(jobs, "playing tasks", progress)
        if not names and "public" in of:
            sizes = await _gather([partial(measure_size, size) for size in SIZES], "reading logs", progress)
            prompts = {number: await prompt_size(number) for number in TOOLS}
    tools: dict[RowSet, ToolCount] = {}
    for one in sets:
        texts = [tool_text(tool.schema) for tool in one.new_tools()]
        tools[one.name] = ToolCount(len(texts), sum(map(tokens, texts)))
    return Report(
        rows=rows, sets=tuple(of), tools=tools, sizes=[row for row in sizes if row], prompts=prompts, rule=rule
    )


async def _gather(jobs: Sequence[Callable[[], Awaitable[T]]], what: str, progress: Progress) -> list[T]:
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


async def measure_live(names: Sequence[str] = (), progress: Progress = _quiet) -> Report:
    """Some public tasks by script, and by the model of this machine. Raises ModelError where there is none."""
    report = await measure_tasks(names or LIVE, progress, of=["public"])
    chosen = [task for task in task_set("public").tasks if task.name in (names or LIVE)]
    live: list[LiveResult] = []
    for place, task in enumerate(chosen):
        progress("asking the model", place, len(chosen))
        live.append(await run_live(task))
    return replace(report, live=live)


async def measure_bfcl(folder: Path, progress: Progress = _quiet, rule: Rule = "closed") -> Report:
    """The public multi-turn set, whole, from a copy of it."""
    with _empty_configuration():
        return await bfcl.play_set(folder, progress, rule)


@contextmanager
def _empty_configuration() -> Generator[None]:
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
