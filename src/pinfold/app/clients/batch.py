"""Run many tasks from a file, a few at a time. Results go to a file; a second run does only the remaining tasks."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
from msgspec import Struct

from pinfold.app.clients.task_runner import Task, TaskResult, TaskRun, run_task
from pinfold.app.errors import ConfigError
from pinfold.app.paths import explain_errors, workspace_at
from pinfold.app.session.build_session import resolve_sandbox
from pinfold.app.session.options import Options
from pinfold.events import Json, SessionId, TurnId, convert, plain_json
from pinfold.sandbox.providers.auto import Auto


def read_tasks(path: Path) -> list[Task]:
    """Raises ConfigError naming the first bad line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {why}") from error
    tasks = [_read_task(f"{path}, line {number}", number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not tasks:
        raise ConfigError(f'{path} holds no task; a line is {{"id": "a", "prompt": "..."}}')
    twice = [id_ for id_, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        raise ConfigError(f"{path}: the id {twice[0]!r} is used more than once; give each task its own")
    return tasks


def _read_task(where: str, number: int, line: str) -> Task:
    try:
        given: Json = json.loads(line)
        if isinstance(given, dict):
            fields = cast("dict[str, Json]", given)
            given = {**fields, "id": str(fields.get("id", number))}
        task = convert(given, Task)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f'{where}: {error}; a line is {{"id": "a", "prompt": "..."}}') from error
    if not task.prompt.strip():
        raise ConfigError(f"{where}: the prompt is empty")
    return task


class ResultFile:
    """Has one line for each ended task. Opening it drops the lines of tasks that will be run again."""

    def __init__(self, path: Path, tasks: Iterable[Task]) -> None:
        """Raises ConfigError."""
        ours = {task.id for task in tasks}
        lines = _read_results(path) if path.exists() else []
        self.done = {result.id: result for result in lines if result.id in ours and result.status == "done"}
        self.failed = frozenset(result.id for result in lines if result.id in ours and result.status != "done")
        """Tasks that did not succeed; they start over in a new session."""
        keep = [result for result in lines if result.id not in ours or result.status == "done"]
        self._mark = path.with_name(f".{path.name}.run")
        new = path.with_name(f".{path.name}.new")
        with explain_errors(f"{path} cannot be written"):
            self.run = self._mark.read_text(encoding="utf-8") if path.exists() and self._mark.exists() else ""
            """Id of this run; a batch that is resumed after a kill keeps it."""
            if not self.run:
                self.run = os.urandom(6).hex()
                self._mark.write_text(self.run, encoding="utf-8")
            new.write_text("".join(f"{plain_json(result)}\n" for result in keep), encoding="utf-8")
            new.replace(path)
            self._file = path.open("a", encoding="utf-8")

    def add(self, result: TaskResult) -> None:
        """Write the result; it is on disk when this returns."""
        self._file.write(f"{plain_json(result)}\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, *, finished: bool) -> None:
        self._file.close()
        if finished:
            self._mark.unlink(missing_ok=True)


def _read_results(path: Path) -> list[TaskResult]:
    lines = path.read_text(encoding="utf-8").split("\n")
    found: list[TaskResult] = []
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                found.append(convert(json.loads(line), TaskResult))
        except (ValueError, msgspec.ValidationError) as error:
            if number == len(lines):  # cut off by a kill
                break
            raise ConfigError(f"{path}, line {number} is not a result: {error}; name another file") from error
    return found


class LocalTasks(Struct, kw_only=True):
    """Runs tasks on this machine, each in its own session.

    The session's id is derived from the run and the task, so a batch that was killed continues in the same sessions.
    """

    batch: str
    """Id of the run."""
    flags: dict[str, Json]
    more: dict[str, Any]
    default: Path
    """The workspace of tasks without one."""
    shared: frozenset[Path]
    """Workspaces that several tasks use."""
    own_views: bool
    """True if the sandbox gives each task a private view; otherwise tasks of one workspace run one at a time."""
    again: frozenset[str] = frozenset()
    """Tasks that start over in a new session."""
    stopping: anyio.Event = msgspec.field(default_factory=anyio.Event)
    """When set, running tasks are interrupted."""
    locks: dict[Path, anyio.Lock] = msgspec.field(default_factory=dict[Path, anyio.Lock])

    async def run(self, task: Task) -> TaskResult:
        """Run a task. Never raises PinfoldError: a task that cannot run has failed."""
        workspace = folder_of(task, self.default)
        lock = self.locks.setdefault(workspace, anyio.Lock())
        is_shared = workspace in self.shared
        run = self._plan(task, workspace, own_view=is_shared and self.own_views)
        if is_shared and not self.own_views:
            async with lock:
                return await run_task(run, anyio.Lock(), self.stopping)
        return await run_task(run, lock, self.stopping)

    def _plan(self, task: Task, workspace: Path, *, own_view: bool) -> TaskRun:
        fresh = os.urandom(6).hex() if task.id in self.again else ""
        name = hashlib.sha256(plain_json([self.batch, task.id, task.prompt, fresh]).encode()).hexdigest()[:12]
        return TaskRun(
            task=task,
            session=SessionId(f"s_{name}"),
            turn=TurnId(f"t_{name}"),
            flags=self.flags,
            more=self.more,
            workspace=workspace,
            own_view=own_view,
        )


def folder_of(task: Task, default: Path) -> Path:
    return workspace_at(Path(task.workspace)) if task.workspace else default


def shared_workspaces(tasks: Iterable[Task], default: Path) -> frozenset[Path]:
    """Raises ConfigError for a workspace that cannot be one."""
    counted = Counter(folder_of(task, default) for task in tasks)
    return frozenset(path for path, count in counted.items() if count > 1)


async def has_views(options: Options) -> bool:
    """True if each session with these options can have its own view of the workspace."""
    async with AsyncExitStack() as ends:
        provider = (await resolve_sandbox(options, None, ends)).provider
        if isinstance(provider, Auto):
            provider = await provider.resolve()
        return provider.capabilities.files_view


async def run_batch(
    tasks: Iterable[Task], executor: LocalTasks, jobs: int, on_result: Callable[[TaskResult], None]
) -> None:
    """Run the tasks, `jobs` at a time, until all have ended or the executor is stopping."""
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:
            if executor.stopping.is_set():
                return
            on_result(await executor.run(task))

    async with anyio.create_task_group() as workers:
        for _ in range(jobs):
            workers.start_soon(work)
