"""`pinfold batch`: many tasks, a few at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import click
from msgspec.structs import replace

from pinfold.app import background, current_folder, new_session_options
from pinfold.app.clients import (
    LocalTasks,
    ResultFile,
    Task,
    TaskResult,
    has_views,
    read_tasks,
    run_batch,
    shared_workspaces,
)
from pinfold.events import new_session_id
from pinfold.front.cli.commands.run import build_if_needed, with_model
from pinfold.front.cli.terminal import set_on_signal
from pinfold.front.flags import PATH, flags_of, mount_settings, session_options
from pinfold.front.pages import columns
from pinfold.front.progress import ProgressDisplay, say, short
from pinfold.text import first_line

_COLUMNS = ("task", "status", "time", "tokens", "session", "answer")


@click.command("batch")
@click.argument("tasks", type=PATH)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 256),
    default=min(4, os.cpu_count() or 1),
    show_default=True,
    help="How many tasks run at the same time.",
)
@click.option("--out", type=PATH, help="File for the results. Default: TASKS.results.jsonl.")
@session_options
def batch_command(tasks: Path, jobs: int, out: Path | None, **given: Any) -> int:
    """Do every task of TASKS, a file of JSON Lines: {"id": "a", "prompt": "...", "workspace": "optional folder"}.

    Each task has a session of its own. Tasks that share a folder each work on a private copy, whose changes are merged
    when the task is done. Results are added to the --out file as they come. A second run with the same file does only
    the tasks that are not done yet.
    """
    listed = read_tasks(tasks)
    out = (out or tasks.with_suffix(".results.jsonl")).absolute()
    flags = flags_of(given)
    first = new_session_options(new_session_id(), given["workspace"], flags)
    first = with_model(replace(first, **mount_settings(given)))
    default = first.workspace or current_folder()
    shared = shared_workspaces(listed, default)
    build_if_needed(given, model=str(first.model), calling=first.calling)
    results = ResultFile(out, listed)
    executor = LocalTasks(
        batch=results.run,
        flags={**flags, "model.name": first.model},
        more=mount_settings(given),
        default=default,
        shared=shared,
        own_views=not shared or anyio.run(has_views, first),
        again=results.failed,
    )
    code: int | None = None
    try:
        code = anyio.run(_run, listed, executor, jobs, results)
        return code
    finally:
        results.close(finished=code in (0, 1, 75))


async def _run(tasks: list[Task], executor: LocalTasks, jobs: int, results: ResultFile) -> int:
    left = [task for task in tasks if task.id not in results.done]
    ended: dict[str, TaskResult] = dict(results.done)
    if len(left) < len(tasks):
        say(f"{len(tasks) - len(left)} of {len(tasks)} tasks were done before")
    progress = ProgressDisplay() if sys.stderr.isatty() else None

    def take(result: TaskResult) -> None:
        results.add(result)
        ended[result.id] = result
        failed = sum(one.status != "done" for one in ended.values())
        counted = f"{len(ended)} of {len(tasks)}" + (f", {failed} failed" if failed else "")
        if progress:
            progress.show("tasks", len(ended), len(tasks), counted)
        else:
            say(f"{result.id}: {result.status} ({result.seconds:.1f} s), {counted}")

    async with background() as watching:
        watching.start_soon(set_on_signal, executor.stopping, "stopping (press Ctrl-C again to leave at once)")
        await run_batch(left, executor, jobs, take)
    if progress:
        progress.end()
    for line in columns([_COLUMNS, *(_row(ended[task.id]) for task in tasks if task.id in ended)]):
        click.echo(line)
    if executor.stopping.is_set():
        say("stopped; run the same command again to continue")
        return 130
    bad = [result for result in ended.values() if result.status != "done"]
    return 0 if not bad else 75 if all(result.temporary for result in bad) else 1


def _row(result: TaskResult) -> tuple[str, ...]:
    return (
        result.id,
        result.status,
        f"{result.seconds:.1f} s",
        short(result.usage.total),
        result.session,
        first_line(result.text),
    )
