"""`pinfold exec`: Python in a session, no model at all."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import click

from pinfold.app import (
    Link,
    NoSuchSession,
    Opening,
    Shelf,
    attach,
    background,
    forget_scratch,
    new_session_options,
    own,
    resumed_options,
    spoken,
)
from pinfold.events import (
    ActionFinished,
    ActionId,
    ApprovalDecided,
    Delta,
    Entry,
    Execute,
    Noticed,
    OutputDelta,
    SessionOpened,
    new_action_id,
    new_session_id,
)
from pinfold.front.cli.running import (
    MORE_THAN_0,
    flags_of,
    mode_option,
    mount_option,
    mounted,
    stop_on_signal,
    unmasked_option,
)
from pinfold.front.cli.showing import JsonLines, is_closed, show_notice
from pinfold.text import presentable

ALLOWED = "nobody can be asked here; with `--mode full` what needs a yes is allowed"


@click.command("exec")
@click.argument("file", required=False)
@click.option("-c", "code", help="The code itself, instead of a file.")
@click.option("-s", "--session", "name", help="Keep the session under this name, or go on with it.")
@mode_option
@click.option("--sandbox", help="Where the code runs, by name.")
@click.option(
    "--workspace", type=click.Path(path_type=Path), help="The folder to work in; this one unless given."
)
@click.option("--data", multiple=True, metavar="[NAME=]PATH", help="Mount read-only at /mnt/datasets/NAME.")
@mount_option
@unmasked_option
@click.option("--timeout", type=MORE_THAN_0, metavar="SECONDS", help="Limit for the cell.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
def exec_command(file: str | None, code: str | None, name: str | None, as_json: bool, **given: Any) -> int:
    """Run the Python in FILE, from standard input (-), or given with -c.

    Its output goes to stdout and stderr as it comes; the value of the last expression follows on stdout.
    """
    source = _source(file, code)
    execute = Execute(id=new_action_id(), code=source, timeout_s=given["timeout"])
    shown = JsonLines() if as_json else _Streams(execute.id)
    if name is not None:
        return anyio.run(_cell, lambda: _named(name, given), execute, shown)
    session = new_session_id()
    options = new_session_options(session, given["workspace"], flags_of(given))
    options = replace(options, **mounted(given))
    try:
        return anyio.run(_cell, lambda: own(None, session, options), execute, shown)
    finally:
        forget_scratch(session)


def _source(file: str | None, code: str | None) -> str:
    if (file is None) == (code is None):
        raise click.UsageError("give either a FILE (- for standard input) or -c CODE")
    if code is not None:
        return code
    if file == "-" and is_closed(sys.stdin):
        raise click.UsageError("standard input is closed")
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file or "").read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error


@asynccontextmanager
async def _named(name: str, given: dict[str, Any]) -> AsyncGenerator[Link]:
    """The session of this name, made if there is none: by one process only, however many ask at once."""
    shelf, flags = Shelf(), flags_of(given)
    async with AsyncExitStack() as stack:
        with shelf.naming():
            try:
                session, folder = shelf.find(name)
                options = resumed_options(session, folder, given["workspace"], flags)
            except NoSuchSession as missing:
                if missing.several or name == "last" or name.startswith("s_"):
                    raise
                session = new_session_id()
                options = replace(new_session_options(session, given["workspace"], flags), title=name)
                folder = shelf.place(session)
            options = replace(options, **mounted(given))
            link = await stack.enter_async_context(attach(folder, session, options))
        yield link


async def _cell(opening: Opening, execute: Execute, shown: JsonLines | _Streams) -> int:
    async with spoken(opening, lambda _: execute) as told, background() as tasks:
        tasks.start_soon(stop_on_signal, told.link, execute.id)
        async for item in told.feed:
            shown.show(item)
            if (
                isinstance(item, Entry)
                and isinstance(item.event, ActionFinished)
                and item.event.id == execute.id
            ):
                return {"ok": 0, "interrupted": 130, "not_run": 2}.get(item.event.outcome, 1)
    return 1


class _Streams:
    """The cell's own streams on ours."""

    def __init__(self, cell: ActionId) -> None:
        self._cell = cell

    def show(self, item: Entry | Delta) -> None:
        match item.event if isinstance(item, Entry) else item:
            case OutputDelta(id=id_, stream=stream, text=text) if id_ == self._cell:
                _write(sys.stderr if stream == "stderr" else sys.stdout, text)
            case Noticed() | SessionOpened() if isinstance(item, Entry):
                show_notice(item)
            case ApprovalDecided(by="nobody"):
                _write(sys.stderr, f"pinfold: {ALLOWED}\n")
            case ActionFinished(id=id_, value=value, error=error, outcome=outcome) if id_ == self._cell:
                if value is not None:
                    _write(sys.stdout, f"{value}\n")
                if error or outcome != "ok":
                    _write(sys.stderr, f"{(error or outcome).rstrip()}\n")
            case _:
                pass


def _write(stream: Any, text: str) -> None:
    if stream.isatty():
        text = presentable(text)
    stream.buffer.write(text.encode("utf-8", "backslashreplace"))
    stream.flush()
