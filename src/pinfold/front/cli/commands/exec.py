"""`pinfold exec`: runs Python in a session, from a file or a notebook, without a model."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
from msgspec.structs import replace

from pinfold.app import (
    Link,
    NoSuchSession,
    Opening,
    SessionStore,
    background,
    begin_search,
    connect,
    forget_scratch,
    new_session_options,
    open_session,
    read_session,
    resume_options,
)
from pinfold.events import ActionFinished, ActionId, Execute, new_action_id, new_session_id
from pinfold.front.cli.commands.run import build_if_needed, follow_to_end, stop_on_signal
from pinfold.front.cli.terminal import is_closed
from pinfold.front.cli.turn_streams import JsonLines, Streams, exit_code, write
from pinfold.front.flags import MORE_THAN_0, PATH, Flags, access_options, flags_of, mount_settings
from pinfold.front.progress import say
from pinfold.text import pluralize

if TYPE_CHECKING:
    from pinfold.app.clients import Notebook, NotebookResult
    from pinfold.app.storage.exports import Target

_LARGEST = 16 << 20
"""Largest program, in bytes."""


@click.command("exec")
@click.argument("file", required=False)
@click.option("-c", "code", help="Python code to run.")
@click.option("-s", "--session", "name", help="Use the session of this name, and keep it; start it if there is none.")
@access_options
@click.option("--timeout", type=MORE_THAN_0, metavar="SECONDS", help="Time limit for the cell.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
@click.option("--to", "target", type=PATH, help="For a notebook: save it here with its outputs.")
@click.option("--force", is_flag=True, help="With --to: overwrite an existing file.")
@click.option("--keep-going", is_flag=True, help="For a notebook: continue after a cell that fails.")
def exec_command(file: str | None, code: str | None, name: str | None, as_json: bool, **given: Any) -> int:
    """Run Python from FILE, from standard input (-), or from -c. FILE may be a notebook (.ipynb).

    Output goes to stdout and stderr as it is written; the value of the last expression follows on stdout.
    """
    notebook = Path(file) if code is None and file is not None and file.lower().endswith(".ipynb") else None
    if not notebook and (given["target"] or given["keep_going"]):
        raise click.UsageError("--to and --keep-going need a notebook (.ipynb)")
    if given["target"] and given["target"].suffix.lower() not in ("", ".ipynb"):
        raise click.UsageError(f"--to writes a notebook, and {given['target']} does not end in .ipynb")
    source = "" if notebook else _source(file, code)
    build_if_needed(given, code=None if notebook else source)
    shown = JsonLines() if as_json else Streams()

    def run(opening: Opening) -> int:
        if notebook:
            with _target(given, name) as target:
                return _exec_notebook(notebook, opening, shown, target, given)
        execute = Execute(id=new_action_id(), code=source, timeout_s=given["timeout"])
        return anyio.run(_run_cell, opening, execute, shown)

    if name is not None:
        return run(lambda: _open_named(name, given))
    session = new_session_id()
    options = new_session_options(session, given["workspace"], flags_of(given))
    if options.workspace is not None:
        begin_search(options.workspace)  # the cell runs at once
    # The code is the user's own, so it may keep notes. A session's name only decides whether variables are kept.
    toolbox = replace(options.toolbox, remembers=True)
    options = replace(options, toolbox=toolbox, **mount_settings(given))
    try:
        return run(lambda: open_session(None, session, options))
    finally:
        forget_scratch(session)


def _target(given: Flags, name: str | None) -> AbstractContextManager[Target | None]:
    """Hold the folder for the saved notebook before any of its code runs, so that the code cannot redirect it."""
    from pinfold.app.storage.exports import Target, writable_folders

    if not given["target"]:
        return nullcontext()
    writable = [given["workspace"] or Path.cwd()]
    writable += [mount.path for mount in mount_settings(given)["mounts"] or () if mount.writable]
    if name is not None:
        with suppress(NoSuchSession):
            session, folder = SessionStore().find(name)
            with read_session(folder, session) as (log, _):
                writable += writable_folders(log.read())
    return Target(given["target"], writable)


def _source(file: str | None, code: str | None) -> str:
    if (file is None) == (code is None):
        raise click.UsageError("give either a FILE (- for standard input) or -c CODE")
    if code is not None:
        return code
    if file == "-" and is_closed(sys.stdin):
        raise click.UsageError("standard input is closed")
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file or "").open("rb") as program:
            data = program.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise click.UsageError(f"{file} is larger than the {_LARGEST >> 20} MB a program may have")
        return data.decode("utf-8")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error


@asynccontextmanager
async def _open_named(name: str, given: Flags) -> AsyncGenerator[Link]:
    """Open the session of this name, or make it. A lock ensures that only one process makes it."""
    store, flags = SessionStore(), flags_of(given)
    async with AsyncExitStack() as stack:
        with store.hold_name_lock():
            try:
                session, folder = store.find(name)
                options = resume_options(session, folder, given["workspace"], flags)
            except NoSuchSession as missing:
                if missing.several or name == "last" or name.startswith("s_"):
                    raise
                session = new_session_id()
                options = replace(new_session_options(session, given["workspace"], flags), title=name)
                folder = store.folder_of(session)
            options = replace(options, **mount_settings(given))
            link = await stack.enter_async_context(connect(folder, session, options))
        yield link


async def _run_cell(opening: Opening, execute: Execute, shown: JsonLines | Streams) -> int:
    if isinstance(shown, Streams):
        shown.cell = execute.id
    _, end = await follow_to_end(opening, lambda _: execute, shown)
    if not isinstance(end, ActionFinished):
        return 1
    code = exit_code(end.error) if end.outcome == "error" else None
    return {"ok": 0, "interrupted": 130, "not_run": 2}.get(end.outcome, 1 if code is None else code)


def _exec_notebook(
    file: Path, opening: Opening, shown: JsonLines | Streams, target: Target | None, given: Flags
) -> int:
    """Run a notebook's code cells in one session; return the exit code, which is not 0 if a cell fails."""
    from pinfold.app.clients import read_notebook, with_outputs

    notebook = read_notebook(file)
    if not notebook.programs:
        say(f"{notebook.name} has no code cells")
    if target and not given["force"]:
        target.check()
    ran, outside = anyio.run(_run_notebook, opening, notebook, shown, given)
    if target:
        target.write(with_outputs(notebook, ran), force=given["force"], outside=outside)
        say(f"saved {target.path}")
    failed = [one for one in ran if one.failed]
    if any(one.finished.outcome == "interrupted" for one in failed):
        return 130
    if left := len(notebook.programs) - len(ran):
        say(f"stopped at this cell; not run: {pluralize('cell', left)} (--keep-going runs all)")
    return 1 if failed else 0


async def _run_notebook(
    opening: Opening, notebook: Notebook, shown: JsonLines | Streams, given: Flags
) -> tuple[list[NotebookResult], str]:
    """Return the results, and the session's id if outside text may be in its output; else an empty string."""
    from pinfold.app.clients import failure_in_words, run_notebook
    from pinfold.app.storage.exports import display_label

    def begin(_: int, id_: ActionId) -> None:
        if isinstance(shown, Streams):
            shown.cell = id_

    async def each(one: NotebookResult) -> None:
        for display in one.output.displays if isinstance(shown, Streams) else ():
            plain = display.forms.get("text/plain")
            is_picture = any(mime.startswith("image/") for mime in display.forms)
            if plain and not is_picture:
                write(sys.stdout, f"{plain.text.rstrip()}\n")
            else:
                say(display_label(display.number, display.forms))
        if one.failed:
            say(failure_in_words(notebook, one))

    keep_going, timeout_s = given["keep_going"], given["timeout"]
    async with opening() as link, background() as tasks:
        tasks.start_soon(stop_on_signal, link, None)
        ran = await run_notebook(
            link, notebook, shown.show, keep_going=keep_going, timeout_s=timeout_s, each=each, begin=begin
        )
        return ran, (await link.status()).outside
