"""Run one task in its own session, from prompt to result. A task that was cut off continues where it stopped."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.clients.submit import event_of, until_end
from pinfold.app.errors import OwnerGone
from pinfold.app.ownership.owner import Link, connect
from pinfold.app.session.options import Options, new_session_options, resume_options
from pinfold.app.storage.session_store import SessionStore
from pinfold.app.tasks import background
from pinfold.app.trust.untrusted_files import Writer
from pinfold.events import (
    Delta,
    Event,
    Interrupt,
    Json,
    PinfoldError,
    Say,
    SessionId,
    TurnEnded,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    Usage,
)
from pinfold.sandbox.views import MergeReport, discard, merge_view

Status: TypeAlias = Literal["done", "failed", "interrupted"]


class Task(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    prompt: str
    workspace: str = ""
    """The folder to work in; empty for the default."""


class TaskResult(Struct, frozen=True, kw_only=True):
    id: str
    status: Status
    text: str
    """The answer, or why there is none."""
    session: SessionId
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    temporary: bool = False
    """True if it failed for a temporary reason."""
    at_limit: bool = False
    """True if it reached a limit of the turn."""
    changed: tuple[str, ...] = ()
    """Files it changed in the workspace."""
    conflicts: tuple[str, ...] = ()
    """Files that were also changed outside the task; those changes are kept."""


class TaskRun(Struct, frozen=True, kw_only=True):
    """A task with its session and turn, whose ids stay the same when it is run again."""

    task: Task
    session: SessionId
    turn: TurnId
    flags: dict[str, Json]
    """Command-line settings by configuration key."""
    more: dict[str, Any] = {}
    """Other fields of the session's options."""
    workspace: Path
    own_view: bool = False
    """True if it works on a private view of the workspace, merged when the task is done."""

    @property
    def folder(self) -> Path:
        return SessionStore().folder_of(self.session)

    def options(self) -> Options:
        if self.folder.is_dir():
            options = resume_options(self.session, self.folder, self.workspace, self.flags)
        else:
            options = new_session_options(self.session, self.workspace, self.flags)
        view = self.folder / "view" if self.own_view else None
        return replace(options, title=options.title or self.task.id, view=view, **self.more)


async def run_task(run: TaskRun, merging: anyio.Lock, stopping: anyio.Event) -> TaskResult:
    """Run a task; never raises PinfoldError. Tasks of one workspace share `merging`; `stopping` interrupts the turn."""
    began = anyio.current_time()
    try:
        result = await _run_turn(run, merging, stopping)
    except PinfoldError as error:
        temporary = error.exit_code == 75
        result = TaskResult(id=run.task.id, status="failed", text=str(error), session=run.session, temporary=temporary)
    return replace(result, seconds=round(anyio.current_time() - began, 3))


async def _run_turn(run: TaskRun, merging: anyio.Lock, stopping: anyio.Event) -> TaskResult:
    options = await anyio.to_thread.run_sync(run.options)
    async with (
        connect(run.folder, run.session, options) as link,
        link.subscribe(0) as feed,
        background() as tasks,
    ):
        # Submitting the same turn id again continues a turn that was cut off, and does not repeat one that ended.
        await link.submit(Say(turn=run.turn, text=run.task.prompt))
        tasks.start_soon(_interrupt_when, stopping, link, run.turn)
        end: Event | Delta | None = None
        async for item in until_end(feed, run.turn):
            end = event_of(item)
        is_untrusted = bool((await link.status()).outside)
    result = _result_of(run, end)
    view = options.view
    if view is None or not view.is_dir():
        return result
    async with merging:
        merged = await anyio.to_thread.run_sync(
            _close_view, run.session, run.workspace, view, is_untrusted, result.status
        )
    return replace(result, changed=tuple(one.path for one in merged.applied), conflicts=merged.conflicts)


async def _interrupt_when(stopping: anyio.Event, link: Link, turn: TurnId) -> None:
    await stopping.wait()
    with suppress(OwnerGone):
        await link.submit(Interrupt(target=turn))


def _result_of(run: TaskRun, end: object) -> TaskResult:
    who: dict[str, Any] = {"id": run.task.id, "session": run.session}
    match end:
        case TurnEnded(text=text, usage=usage, cost=cost):
            return TaskResult(**who, status="done", text=text, usage=usage, cost=cost)
        case TurnFailed(error=error, usage=usage, temporary=temporary, at_limit=limit):
            return TaskResult(**who, status="failed", text=error, usage=usage, temporary=temporary, at_limit=limit)
        case TurnInterrupted(reason=reason, usage=usage):
            return TaskResult(**who, status="interrupted", text=reason, usage=usage)
        case _:
            return TaskResult(**who, status="failed", text="the session ended before the turn did", temporary=True)


def _close_view(session: SessionId, workspace: Path, view: Path, untrusted: bool, status: Status) -> MergeReport:
    """Merge the changes of a finished task into the workspace, then discard the view."""
    try:
        return merge_changes(session, workspace, view, untrusted) if status == "done" else NOTHING
    finally:
        discard(view)


NOTHING = MergeReport()


def merge_changes(session: SessionId, workspace: Path, view: Path, untrusted: bool) -> MergeReport:
    """Merge a view into the workspace. Files written by an untrusted session are marked as such."""
    writer = Writer(session, (workspace,))
    if untrusted:
        writer.turn_untrusted()
    merged = merge_view(workspace, view)
    writer.end()
    return merged
