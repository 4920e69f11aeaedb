"""`pinfold run` and `pinfold resume`: one turn from the command line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import click
from msgspec.structs import replace

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
    new_session_options,
    open_session,
    remove_unstarted,
    resume_options,
    scratch_folder,
    submit_and_follow,
)
from pinfold.app.models.session_models import CallOptions, is_usable
from pinfold.app.session.answers import read_schema
from pinfold.app.session.environment import packages_to_build
from pinfold.events import (
    ActionId,
    Command,
    Continue,
    Entry,
    Image,
    Interrupt,
    Say,
    SessionId,
    TurnEnded,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    new_session_id,
    new_turn_id,
)
from pinfold.front.cli.flags import flags_of, from_options, mount_settings, turn_options
from pinfold.front.cli.turn_input import TurnInput, prompt_from
from pinfold.front.cli.turn_output import JsonLines, Plain
from pinfold.text import presentable_line

BRANCHES = 16
_STOP_S = 10.0
"""How long a turn may take to stop after Ctrl-C before we leave without it."""


def with_notebook(opening: Opening, given: dict[str, Any]) -> tuple[Opening, Callable[[Say], Say]]:
    """The session with the notebook of `--from` in it, and how the prompt tells of it."""
    if given["notebook"] is None:
        if given["no_run"]:
            raise click.UsageError("--no-run goes with --from")
        return opening, lambda say: say
    from pinfold.app.clients.notebooks import AttachedNotebook

    brought = AttachedNotebook(given["notebook"], run=not given["no_run"], say=_say_line)
    return brought.wrap_opening(opening), lambda say: replace(say, text=brought.add_to_prompt(say.text))


def _say_line(text: str) -> None:
    click.echo(presentable_line(f"pinfold: {text}"), err=True)


@click.command("run")
@click.argument("prompt", required=False)
@click.option("-f", "--file", metavar="FILE", help="The prompt is in this file; - for standard input.")
@click.option(
    "--attach",
    multiple=True,
    metavar="FILE",
    help="Give a file along: pictures and short texts are shown to the model, all are data. - for standard input.",
)
@click.option(
    "--output-schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The answer is JSON valid against this JSON Schema, or the task has failed.",
)
@turn_options
@click.option("--ephemeral", is_flag=True, help="Leave nothing on disk.")
@click.option("--title", help="A name for the session.")
@from_options
@click.option(
    "--branches",
    type=click.IntRange(2, BRANCHES),
    help="Run N attempts in parallel, each on its own copy of the files.",
)
@click.option("--check", metavar="CMD", help="The first branch in which this shell command succeeds is kept.")
def run_command(prompt: str | None, file: str | None, ephemeral: bool, **given: Any) -> int:
    """Do one task and print the answer. PROMPT may come from a file (-f) or from standard input.

    Beside a PROMPT, standard input is data: the model is told how it begins, and code reads all of it. The answer goes
    to stdout, everything else to stderr. What would need a yes is denied.
    """
    if (given["branches"] is None) != (given["check"] is None):
        raise click.UsageError("--branches and --check belong together: which one is kept, and by what?")
    if given["branches"] and given["notebook"]:
        raise click.UsageError("--from brings a notebook into one session; leave --branches out")
    text = prompt_from(prompt, file)
    along = TurnInput(text, given["data"], given["attach"], beside=prompt not in (None, "-") or file not in (None, "-"))
    session = new_session_id()
    options = new_session_options(session, given["workspace"], flags_of(given))
    schema = None if given["output_schema"] is None else read_schema(given["output_schema"])
    options = replace(options, title=given["title"], answer_schema=schema, **mount_settings(given))
    options = with_model(options)
    # Hundreds of megabytes are fetched where somebody sees it, or for the model that fetches more itself.
    if options.model in BUILTIN or sys.stderr.isatty():
        build_if_needed(given, model=str(options.model), calling=options.calling)
    folder = None if ephemeral else SessionStore().folder_of(session)
    try:
        along.read_stdin(input_of(folder) if folder else scratch_folder(_scratch_input(session)))
        options = replace(options, data=along.data)
        if given["branches"]:
            along.refuse_with("--branches")
            from pinfold.front.cli.commands.race import run_race

            return anyio.run(run_race, options, along.text, None if ephemeral else SessionStore(), given)
        return anyio.run(_new_turn, session, folder, options, along, given)
    finally:
        if folder:
            remove_unstarted(folder)
        else:
            forget_scratch(session)
            forget_scratch(_scratch_input(session))


def _scratch_input(session: SessionId) -> str:
    """The scratch folder for standard input, where a session leaves nothing behind."""
    return f"{session}-input"


async def _new_turn(
    session: SessionId, folder: Path | None, options: Options, along: TurnInput, given: dict[str, Any]
) -> int:
    def open_link() -> AbstractAsyncContextManager[Link]:
        return open_session(None, session, options) if folder is None else connect(folder, session, options)

    turn, images = new_turn_id(), list[Image]()
    opened, telling = with_notebook(along.wrap_opening(open_link, folder, images), given)
    told = folder is not None and not given["quiet"]
    return await _run_turn(
        opened, lambda _: telling(along.build_command(turn, tuple(images))), _make_output(given), told
    )


@click.command("resume")
@click.argument("session")
@click.argument("prompt", required=False)
@turn_options
def resume_command(session: str, prompt: str | None, **given: Any) -> int:
    """Go on with a session: with PROMPT, or in the chat; in a pipe with the turn that was cut off.

    SESSION is an id, its beginning, a name, or `last`.
    """
    if prompt is not None and not prompt.strip():
        raise click.UsageError("the PROMPT is empty")
    if prompt is None and not (given["as_json"] or given["quiet"]) and sys.stdin.isatty() and sys.stdout.isatty():
        from pinfold.front.cli.commands.chat import chat_here

        return chat_here({**given, "session": session, "ephemeral": False, "title": None})
    found, folder = SessionStore().find(session)
    options = resume_options(found, folder, given["workspace"], flags_of(given))
    options = replace(options, **mount_settings(given))
    say = Say(turn=new_turn_id(), text=prompt) if prompt else None

    def command_for(standing: SessionStatus) -> Command:
        if standing.no_model:
            raise ConfigError(standing.no_model)
        return say or _make_continuation(standing, found)

    return anyio.run(
        _run_turn, lambda: connect(folder, found, options), command_for, _make_output(given), not given["quiet"]
    )


def with_model(options: Options) -> Options:
    """With one, and its weights here. What that takes is loaded only where it is needed."""
    if not options.model:
        from pinfold.app.models.local_models import choose_model

        model = anyio.run(choose_model)
        options = replace(options, model=model.name, notices=(*options.notices, model.why))
    if options.model in BUILTIN:
        from pinfold.front.cli.model_download import fetch

        fetch(str(options.model))
    return options


def build_if_needed(
    given: dict[str, Any], *, model: str = "", calling: CallOptions | None = None, code: str | None = None
) -> None:
    """The packages for the code of a session, before it begins."""
    workspace = given["workspace"] or current_folder()
    packages = packages_to_build(workspace, given["sandbox"], model=model, code=code)
    if packages is None or (calling and not is_usable(model, calling)):
        return
    from pinfold.front.cli.commands.environment import build_with_progress

    build_with_progress(packages)


def _make_output(given: dict[str, Any]) -> JsonLines | Plain:
    return JsonLines() if given["as_json"] else Plain(quiet=given["quiet"])


async def _run_turn(
    opening: Opening, command_for: Callable[[SessionStatus], Command], shown: JsonLines | Plain, told: bool
) -> int:
    """`told`: how to go on with what did not end well is said."""
    async with submit_and_follow(opening, command_for) as talk, background() as tasks:
        turn = talk.command.turn if isinstance(talk.command, Say) else talk.standing.turn
        spinner = shown.spinner
        tasks.start_soon(stop_on_signal, talk.link, turn, spinner.clear if spinner else _do_nothing)
        if spinner:
            tasks.start_soon(spinner.spin)
        async for item in talk.feed:
            shown.show(item)
            if isinstance(item, Entry) and (code := _exit_code(item, turn)) is not None:
                if code and told:
                    click.echo(f"pinfold: go on with: pinfold resume {talk.link.session}", err=True)
                return code
    return 1


def _make_continuation(standing: SessionStatus, session: SessionId) -> Say | Continue:
    match standing.end:
        case "open":
            return Continue()
        case "interrupted" | "failed":
            return Say(turn=new_turn_id(), text="Continue.")
        case _:
            raise ConfigError(f"{session} has nothing to go on with: give a prompt, pinfold resume {session} PROMPT")


def _exit_code(entry: Entry, turn: TurnId | None) -> int | None:
    """What the command exits with if this event ends the turn."""
    match entry.event:
        case TurnEnded(turn=ended) if ended == turn:
            return 0
        case TurnFailed(turn=failed, temporary=temporary) if failed == turn:
            return 75 if temporary else 1
        case TurnInterrupted(turn=interrupted) if interrupted == turn:
            return 130
        case _:
            return None


def _do_nothing() -> None:
    pass


async def stop_on_signal(link: Link, target: TurnId | ActionId | None, clear: Callable[[], None] = _do_nothing) -> None:
    """Ctrl-C stops what we asked for and keeps the state; a second one, or what will not stop, ends the command."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            break
        clear()
        click.echo("pinfold: stopping (once more to leave at once)", err=True)
        await link.submit(Interrupt(target=target))
        with anyio.move_on_after(_STOP_S):
            async for _ in signals:
                break
    raise KeyboardInterrupt
