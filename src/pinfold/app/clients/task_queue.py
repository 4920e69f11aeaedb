"""A queue of tasks in one SQLite file, run by one process. If it is killed, no task is lost or repeated."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
from msgspec import Struct

from pinfold.app.clients.task_runner import Task, TaskResult, TaskRun, run_task
from pinfold.app.errors import ConfigError
from pinfold.app.ownership.owner import RemoteSession
from pinfold.app.paths import data_dir, private_dir
from pinfold.app.storage.session_store import Claim, SessionStore, claim, holder_of
from pinfold.events import Interrupt, Json, PinfoldError, SessionId, TurnId, convert, new_session_id, new_turn_id

QueueState: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]
ATTEMPTS = 6
"""Maximum attempts for a task that fails for a temporary reason."""
CONTINUATIONS = 10
"""How often a task that reached a limit is continued in a new turn."""
_RETRY_S = 30.0
_LONGEST_RETRY_S = 3600.0
_LOOK_AGAIN_S = 0.2
_CONTINUE = (
    "The last turn ended before the task was done. Go on where you stopped: "
    "the plan, the lab notebook, the variables and the files are as you left them."
)
_SCHEMA = """CREATE TABLE IF NOT EXISTS tasks (number INTEGER PRIMARY KEY AUTOINCREMENT, added REAL NOT NULL,
    prompt TEXT NOT NULL, workspace TEXT NOT NULL, flags TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'waiting',
    session TEXT NOT NULL, turn TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    continued INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL DEFAULT 0, text TEXT NOT NULL DEFAULT '')"""


class QueuedTask(Struct, frozen=True, kw_only=True):
    number: int
    prompt: str
    workspace: str
    flags: dict[str, Json]
    state: QueueState
    session: SessionId
    turn: TurnId
    attempts: int
    continued: int
    due: float
    """When it may be tried again (Unix time)."""
    text: str
    """The answer, or why there is none yet."""


class TaskQueue:
    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder or data_dir() / "queue"
        self._clock = clock

    def add(self, prompt: str, workspace: Path, flags: dict[str, Json]) -> QueuedTask:
        with self._open() as db:
            row = (self._clock(), prompt, str(workspace), json.dumps(flags), new_session_id(), new_turn_id())
            sql = "INSERT INTO tasks (added, prompt, workspace, flags, session, turn) VALUES (?, ?, ?, ?, ?, ?)"
            number = db.execute(sql, row).lastrowid
        return self.get(number or 0)

    def get(self, number: int) -> QueuedTask:
        """Raises ConfigError."""
        found = next((task for task in self.tasks() if task.number == number), None)
        if found is None:
            raise ConfigError(f"there is no task {number} in the queue; pinfold queue list shows them")
        return found

    def tasks(self) -> list[QueuedTask]:
        """Return all tasks in the order they were added."""
        with self._open() as db:
            db.row_factory = sqlite3.Row
            rows = db.execute("SELECT * FROM tasks ORDER BY number").fetchall()
        return [convert({**dict(row), "flags": json.loads(row["flags"])}, QueuedTask) for row in rows]

    def cancel(self, number: int) -> QueuedTask:
        """Mark a task as cancelled. If it is running, the caller must interrupt it. Raises ConfigError."""
        task = self.get(number)
        if task.state in ("done", "failed", "cancelled"):
            raise ConfigError(f"task {number} has ended already ({task.state})")
        self._update(number, state="cancelled")
        return task

    def start_next(self) -> QueuedTask | None:
        """Mark the first due task as running and return it.

        Tasks of one folder run one at a time, because their changes are not merged.
        """
        now, tasks = self._clock(), self.tasks()
        busy = {task.workspace for task in tasks if task.state == "running"}
        for task in tasks:
            if task.state == "waiting" and task.due <= now and task.workspace not in busy:
                self._update(task.number, state="running")
                return task
        return None

    def is_over(self) -> bool:
        """True if no task waits or runs."""
        return not any(task.state in ("waiting", "running") for task in self.tasks())

    def release(self) -> None:
        """Put tasks that a killed process was running back in the queue; they continue in their sessions."""
        for task in self.tasks():
            if task.state == "running":
                self._update(task.number, state="waiting")

    def finish(self, number: int, result: TaskResult) -> None:
        """Record the end of a run: finished, to be retried later, or to be continued in a new turn of its session."""
        task = self.get(number)
        if task.state == "cancelled":
            return
        if result.status == "interrupted":
            self._update(number, state="waiting", turn=new_turn_id(), prompt=_CONTINUE, text=result.text)
        elif result.temporary and task.attempts + 1 < ATTEMPTS:
            wait_s = min(_LONGEST_RETRY_S, _RETRY_S * 2**task.attempts)
            again = {"turn": new_turn_id(), "attempts": task.attempts + 1, "due": self._clock() + wait_s}
            self._update(number, state="waiting", text=result.text, **again)
        elif result.at_limit and task.continued < CONTINUATIONS:
            more = {"turn": new_turn_id(), "prompt": _CONTINUE, "continued": task.continued + 1}
            self._update(number, state="waiting", text=result.text, **more)
        else:
            self._update(number, state="done" if result.status == "done" else "failed", text=result.text)

    def claim(self) -> Claim:
        """Become the only process that runs the tasks. Raises ConfigError."""
        private_dir(self.folder)
        claimed = claim(self.folder)
        if claimed is None:
            raise ConfigError(f"process {holder_of(self.folder)} runs the queue already")
        return claimed

    def _update(self, number: int, **fields: object) -> None:
        names = ", ".join(f"{name} = ?" for name in fields)
        with self._open() as db:
            db.execute(f"UPDATE tasks SET {names} WHERE number = ?", (*fields.values(), number))  # noqa: S608 - our own names

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        private_dir(self.folder)
        try:
            with closing(sqlite3.connect(self.folder / "tasks.db", timeout=10.0)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(_SCHEMA)
                with connection:
                    yield connection
        except sqlite3.Error as error:
            raise ConfigError(f"{self.folder / 'tasks.db'} cannot be used: {error}") from error


async def interrupt_task(task: QueuedTask) -> None:
    """Stop the turn of a task that another process runs."""
    folder = SessionStore().folder_of(task.session)
    try:
        await RemoteSession(task.session, folder).submit(Interrupt(target=task.turn))
    except PinfoldError:
        return  # it has ended meanwhile


async def run_queue(
    queue: TaskQueue,
    jobs: int,
    *,
    on_start: Callable[[QueuedTask], None],
    on_end: Callable[[QueuedTask], None],
    stopping: anyio.Event,
    wait: bool,
) -> None:
    """Run tasks, `jobs` at a time, until none is left; with `wait`, until `stopping` is set."""
    queue.release()

    async def run_one(task: QueuedTask) -> None:
        on_start(task)
        run = TaskRun(
            task=Task(id=f"task {task.number}", prompt=task.prompt),
            session=task.session,
            turn=task.turn,
            flags=task.flags,
            workspace=Path(task.workspace),
        )
        queue.finish(task.number, await run_task(run, anyio.Lock(), stopping))
        on_end(queue.get(task.number))

    async def work() -> None:
        while not stopping.is_set():
            task = queue.start_next()
            if task is not None:
                await run_one(task)
                continue
            if not wait and queue.is_over():
                return
            with anyio.move_on_after(_LOOK_AGAIN_S):
                await stopping.wait()

    async with anyio.create_task_group() as workers:
        for _ in range(jobs):
            workers.start_soon(work)
