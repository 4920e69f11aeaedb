"""`pinfold run` and `pinfold resume`: one turn from the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import click
from msgspec.structs import replace

from pinfold import events
from pinfold.app import (
    BUILTIN,
    ConfigError,
    Link,
    Opening,
    Options,
    SessionStatus,
    SessionStore,
    background,
    connect,
    current_folder,
    forget_scratch,
    input_of,
    is_end,
    new_session_options,
    open_session,
    remove_unstarted,
    resume_options,
    scratch_folder,
    submit_and_follow,
)
from pinfold.app.models import CallOptions, is_usable
from pinfold.app.session import packages_to_build, read_schema
from pinfold.events import Command, Delta, Entry, Event, Say, SessionId
from pinfold.front.cli.turn_streams import JsonLines, Plain, Streams, TurnInput, prompt_from, show_notice
from pinfold.front.flags import PATH, Flags, flags_of, from_options, mount_settings, turn_options
from pinfold.front.progress import Spinner, say
from pinfold.front.signals import receive_stop_signals

_STOP_S = 10.0
"""How long a turn may take to stop after Ctrl-C."""


@click.command("run")
@click.argument("prompt", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the prompt from FILE; - for standard input.")
@click.option("--attach", multiple=True, metavar="FILE", help="Give the model a file or picture; - for standard input.")
@click.option("--output-schema", type=PATH, metavar="FILE", help="The answer must be JSON that fits this JSON Schema.")
@turn_options
@click.option("--ephemeral", is_flag=True, help="Leave nothing on disk.")
@click.option("--title", help="A name for the session.")
@from_options
@click.option(
    "--branches", type=click.IntRange(2, 16), help="Run N attempts in parallel, each on its own copy of the files."
)
@click.option("--check", metavar="CMD", help="With --branches: keep the first attempt in which this command succeeds.")
@click.option("--background", is_flag=True, help="Do the task in the background and print the session's id.")
def run_command(prompt: str | None, file: str | None, ephemeral: bool, **given: Any) -> int:
    """Do one task and print the answer. PROMPT may also come from a file (-f) or from standard input.

    If PROMPT is given, standard input is data: the model sees its beginning, and code can read all of it. The answer
    goes to stdout, everything else to stderr. Actions that need approval are denied.
    """
    if (given["branches"] is None) != (given["check"] is None):
        raise click.UsageError("--branches needs --check, and --check needs --branches")
    if given["branches"] and given["notebook"]:
        raise click.UsageError("--from and --branches cannot be combined")
    if given["no_run"] and not given["notebook"]:
        raise click.UsageError("--no-run needs --from")
    text = prompt_from(prompt, file)
    if given["background"]:
        from pinfold.front.cli.commands.queue import run_in_background

        return run_in_background(text, given)
    turn_input = TurnInput(
        text, given["data"], given["attach"], stdin_is_data=prompt not in (None, "-") or file not in (None, "-")
    )
    session = events.new_session_id()
    options = new_session_options(session, given["workspace"], flags_of(given))
    schema = None if given["output_schema"] is None else read_schema(given["output_schema"])
    options = replace(options, title=given["title"], answer_schema=schema, **mount_settings(given))
    options = with_model(options)
    # This may download hundreds of megabytes: only if the user sees it, or for the built-in model, which is larger.
    if options.model in BUILTIN or sys.stderr.isatty():
        build_if_needed(given, model=str(options.model), calling=options.calling)
    folder = None if ephemeral else SessionStore().folder_of(session)
    scratch_input = f"{session}-input"
    try:
        turn_input.read_stdin(input_of(folder) if folder else scratch_folder(scratch_input))
        options = replace(options, data=turn_input.data)
        if given["branches"]:
            turn_input.refuse_with("--branches")
            return anyio.run(_run_race, options, turn_input.text, None if ephemeral else SessionStore(), given)
        return anyio.run(_new_turn, session, folder, options, turn_input, given)
    finally:
        if folder:
            remove_unstarted(folder)
        else:
            forget_scratch(session)
            forget_scratch(scratch_input)


async def _new_turn(
    session: SessionId, folder: Path | None, options: Options, turn_input: TurnInput, given: Flags
) -> int:
    def open_link() -> AbstractAsyncContextManager[Link]:
        return open_session(None, session, options) if folder is None else connect(folder, session, options)

    turn, images = events.new_turn_id(), list[events.Image]()
    opened = turn_input.wrap_opening(open_link, folder, images)
    notebook = None
    if given["notebook"]:
        from pinfold.app.clients import AttachedNotebook

        notebook = AttachedNotebook(given["notebook"], run=not given["no_run"], say=say)
        opened = notebook.wrap_opening(opened)

    def command_for(_: SessionStatus) -> Say:
        text = notebook.add_to_prompt(turn_input.text) if notebook else turn_input.text
        return Say(turn=turn, text=text, images=tuple(images))

    return await _run_turn(opened, command_for, given, hints=folder is not None)


@click.command("resume")
@click.argument("session")
@click.argument("prompt", required=False)
@turn_options
def resume_command(session: str, prompt: str | None, **given: Any) -> int:
    """Continue a session: with PROMPT, or in the chat. In a pipe without PROMPT, continue the interrupted turn.

    SESSION is an id, the start of one, a name, or `last`.
    """
    if prompt is not None and not prompt.strip():
        raise click.UsageError("the PROMPT is empty")
    if prompt is None and not (given["as_json"] or given["quiet"]) and sys.stdin.isatty() and sys.stdout.isatty():
        from pinfold.front.cli.commands.chat import chat_here

        return chat_here({**given, "session": session, "ephemeral": False, "title": None})
    found, folder = SessionStore().find(session)
    options = resume_options(found, folder, given["workspace"], flags_of(given))
    options = replace(options, **mount_settings(given))
    said = Say(turn=events.new_turn_id(), text=prompt) if prompt else None

    def command_for(status: SessionStatus) -> Command:
        if status.no_model:
            raise ConfigError(status.no_model)
        match status.end:
            case _ if said:
                return said
            case "open":
                return events.Continue()
            case "interrupted" | "failed":
                return Say(turn=events.new_turn_id(), text="Continue.")
            case _:
                raise ConfigError(f"{found} has no interrupted turn: give a prompt, pinfold resume {found} PROMPT")

    return anyio.run(_run_turn, lambda: connect(folder, found, options), command_for, given)


def with_model(options: Options) -> Options:
    """Choose a model if none is named, and fetch the weights of a built-in one."""
    if not options.model:
        from pinfold.app.models import choose_model

        model = anyio.run(choose_model)
        options = replace(options, model=model.name, notices=(*options.notices, model.why))
    if options.model in BUILTIN:
        from pinfold.front.cli.commands.installation import fetch

        fetch(str(options.model))
    return options


def build_if_needed(
    given: Flags, *, model: str = "", calling: CallOptions | None = None, code: str | None = None
) -> None:
    """Build the Python environment of a session before it begins."""
    workspace = given["workspace"] or current_folder()
    packages = packages_to_build(workspace, given["sandbox"], model=model, code=code)
    if packages is None or (calling and not is_usable(model, calling)):
        return
    from pinfold.front.cli.commands.installation import build_with_progress

    build_with_progress(packages)


async def _run_turn(
    opening: Opening, command_for: Callable[[SessionStatus], Command], given: Flags, *, hints: bool = True
) -> int:
    """Run a turn and return the exit code. `hints`: say how to resume a turn that did not end well."""
    shown = JsonLines() if given["as_json"] else Plain(quiet=given["quiet"])
    session, end = await follow_to_end(opening, command_for, shown)
    match end:
        case events.TurnEnded():
            return 0
        case events.TurnFailed(temporary=True):
            code = 75
        case events.TurnInterrupted():
            code = 130
        case _:
            code = 1
    if hints and end and not given["quiet"]:
        say(f"continue with: pinfold resume {session}")
    return code


async def follow_to_end(
    opening: Opening, command_for: Callable[[SessionStatus], Command], shown: JsonLines | Plain | Streams
) -> tuple[SessionId, Event | None]:
    """Show a turn or cell until it ends; return its session, and its last event if it did end."""
    async with submit_and_follow(opening, command_for) as talk, background() as tasks:
        tasks.start_soon(stop_on_signal, talk.link, talk.target, shown.spinner)
        if shown.spinner:
            tasks.start_soon(shown.spinner.spin)
        async for item in talk.feed:
            shown.show(item)
            if isinstance(item, Entry) and is_end(item, talk.target):
                return talk.link.session, item.event
        return talk.link.session, None


async def stop_on_signal(
    link: Link, target: events.TurnId | events.ActionId | None, spinner: Spinner | None = None
) -> None:
    """Interrupt the turn on Ctrl-C, which keeps its state; leave on a second Ctrl-C, or if the turn does not stop."""
    with receive_stop_signals() as signals:
        await anext(signals)
        if spinner:
            spinner.clear()
        say("stopping (press Ctrl-C again to leave at once)")
        await link.submit(events.Interrupt(target=target))
        with anyio.move_on_after(_STOP_S):
            await anext(signals)
    raise KeyboardInterrupt


async def _run_race(options: Options, prompt: str, store: SessionStore | None, given: Flags) -> int:
    from pinfold.app.clients import BestOfN, describe_conflicts

    def show(item: Entry | Delta) -> None:
        if given["as_json"]:
            JsonLines().show(item)
        elif isinstance(item, Entry) and not given["quiet"]:
            show_notice(item)

    race = BestOfN(options, given["branches"], store=store, show=show, say=say)
    async with background() as tasks:
        tasks.start_soon(_leave_on_signal)
        won = await race.run(prompt, given["check"])
    if won is None:
        say(f"none of {given['branches']} branches passed the check; the files are as they were")
        return 1
    for line in describe_conflicts(won.merged):
        say(line)
    say(f"branch {won.branch.number} is kept, files changed: {len(won.merged.applied)}")
    if not given["as_json"]:
        Plain(quiet=True).answer(won.text)
    return 0


async def _leave_on_signal() -> None:
    with receive_stop_signals() as signals:
        await anext(signals)
    raise KeyboardInterrupt
