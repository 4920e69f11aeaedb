"""`pinfold queue`, `pinfold attach`, and `pinfold run --background`: tasks that are done without a terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio
import click

from pinfold.app import (
    ConfigError,
    LiveSession,
    SessionStore,
    background,
    connect,
    is_end,
    new_session_options,
    resume_options,
)
from pinfold.app.clients import QueuedTask, TaskQueue, interrupt_task, run_queue
from pinfold.events import Entry, SessionId, TurnEnded, TurnId, TurnInterrupted, UserSpoke, new_session_id
from pinfold.front.cli.terminal import set_on_signal, show_rows, start_in_background
from pinfold.front.cli.turn_streams import Plain, prompt_from
from pinfold.front.flags import Flags, flags_of, session_options
from pinfold.front.progress import say
from pinfold.text import first_line

_INTERRUPTED = 130
_TEXT = 60
"""Most characters of a task's text in the list."""
_REASON = 200
_START_S = 30.0
"""How long a task in the background may take to open its session."""
_LOOK_AGAIN_S = 0.1


@click.group("queue")
def queue_command() -> None:
    """Queue tasks for later. They survive restarts; `pinfold queue run` does them, in a terminal or from cron."""


@queue_command.command("add")
@click.argument("prompt")
@session_options
def add_command(prompt: str, **given: object) -> None:
    """Add a task. It is done in the current folder, or in --workspace, by the next `pinfold queue run`."""
    task = add_task(prompt_from(prompt, None), given)
    click.echo(f"task {task.number} added as session {task.session}; start it with: pinfold queue run")


def add_task(prompt: str, given: Flags) -> QueuedTask:
    if given["data"] or given["mount"]:
        raise click.UsageError("--data and --mount are not kept with a queued task; name the files in the task")
    flags = {key: value for key, value in flags_of(given).items() if value not in (None, (), {})}
    options = new_session_options(new_session_id(), given["workspace"], flags)
    if options.workspace is None:
        raise ConfigError("a task needs a folder; name one with --workspace")
    return TaskQueue().add(prompt, options.workspace, flags)


@queue_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per task.")
def list_command(as_json: bool) -> None:
    """List all tasks, with their states and answers."""
    show_rows(((task, _line(task)) for task in TaskQueue().tasks()), as_json=as_json, nothing="No tasks.")


def _line(task: QueuedTask) -> str:
    said = first_line(task.text or task.prompt, _TEXT)
    return f"{task.number:>4}  {task.state:<9}  {task.session}  {said}"


@queue_command.command("cancel")
@click.argument("number", type=int)
def cancel_command(number: int) -> None:
    """Cancel a task. One that is running is interrupted; what it did so far stays in its session."""
    task = TaskQueue().cancel(number)
    if task.state == "running":
        anyio.run(interrupt_task, task)
    click.echo(f"task {number} is cancelled")


@queue_command.command("run")
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="How many tasks run at once."
)
@click.option("--wait", is_flag=True, help="When all tasks are done, wait for new ones.")
def queue_run_command(jobs: int, wait: bool) -> int:
    """Do the tasks that are due, in order. A task that fails for a temporary reason is tried again later."""
    queue, ended = TaskQueue(), list[QueuedTask]()
    claimed = queue.claim()
    if not wait and queue.is_over():
        say("the queue is empty; add a task with: pinfold queue add PROMPT")
    while True:
        try:
            code = anyio.run(_run, queue, jobs, wait, ended)
        finally:
            claimed.release()
        if code == _INTERRUPTED or queue.is_over():
            return code
        # The process started for a task that was just added may have given up because this one held the claim.
        try:
            claimed = queue.claim()
        except ConfigError:
            return code


async def _run(queue: TaskQueue, jobs: int, wait: bool, ended: list[QueuedTask]) -> int:
    """Run the tasks that are due and add them to `ended` as they end; return the exit code."""
    stopping = anyio.Event()

    def start(task: QueuedTask) -> None:
        say(f"task {task.number} runs as {task.session}")

    def end(task: QueuedTask) -> None:
        ended.append(task)
        again = f"will continue at {time.strftime('%H:%M:%S', time.localtime(max(task.due, time.time())))}"
        became = {"done": "is done", "failed": "failed", "cancelled": "was cancelled"}.get(task.state, again)
        say(f"task {task.number} {became}: {first_line(task.text, _REASON)}")

    async with background() as watching:
        watching.start_soon(set_on_signal, stopping, "stopping; the next `pinfold queue run` continues these tasks")
        await run_queue(queue, jobs, on_start=start, on_end=end, stopping=stopping, wait=wait)
    if stopping.is_set():
        return _INTERRUPTED
    return 1 if any(task.state == "failed" for task in ended) else 0


def run_in_background(prompt: str, given: Flags) -> int:
    """Add the task and start a process that runs the queue; it ends at once if another process already does."""
    task = add_task(prompt, given)
    start_in_background(("queue", "run", "-j", "2"), TaskQueue().folder / "run.log")
    click.echo(task.session)
    say(f"runs in the background as task {task.number}; follow it with: pinfold attach {task.session}")
    return 0


@click.command("attach")
@click.argument("session")
@click.option("-q", "--quiet", is_flag=True, help="Print the answer only.")
def attach_command(session: str, quiet: bool) -> int:
    """Follow the last turn of a session to its end and print the answer. Ctrl-C leaves it running.

    SESSION is an id, the start of one, a name, or `last`.
    """
    queued = next((task for task in TaskQueue().tasks() if session in (task.session, str(task.number))), None)
    if queued:
        _wait_for(SessionStore().folder_of(queued.session), queued.number)
    found, folder = SessionStore().find(queued.session if queued else session)
    code = anyio.run(_follow, found, folder, Plain(quiet=quiet), queued.turn if queued else None)
    if sys.stderr.isatty():
        click.echo("\a", err=True, nl=False)
    return code


def _wait_for(folder: Path, number: int) -> None:
    """Wait until the task's session exists. Raises ConfigError if the task does not begin."""
    give_up_at = time.monotonic() + _START_S
    while not folder.is_dir() and TaskQueue().get(number).state in ("waiting", "running"):
        if time.monotonic() > give_up_at:
            raise ConfigError(f"task {number} has not started; start it with: pinfold queue run")
        time.sleep(_LOOK_AGAIN_S)


async def _follow(session: SessionId, folder: Path, shown: Plain, turn: TurnId | None) -> int:
    """Follow `turn`, which a queued task may be about to begin, else the session's last; return the exit code."""
    options = resume_options(session, folder, None, {})
    async with connect(folder, session, options) as link, link.subscribe(0) as feed:
        status = await link.status()
        if turn is None and isinstance(link, LiveSession) and status.end == "open":
            raise ConfigError(f"{session} was cut off and nothing runs it; continue with: pinfold resume {session}")
        turn = turn or status.turn
        if turn is None:
            raise ConfigError(f"{session} has no turn yet")
        begun = False
        async for item in feed:
            begun = begun or _begins(item, turn)
            if begun:
                shown.show(item)
            if isinstance(item, Entry) and is_end(item, turn):
                if isinstance(item.event, TurnInterrupted):
                    say("the turn was interrupted before its end; the session keeps what was done")
                return 0 if isinstance(item.event, TurnEnded) else 1
    return 1


def _begins(item: object, turn: TurnId) -> bool:
    return isinstance(item, Entry) and isinstance(item.event, UserSpoke) and item.event.turn == turn
