"""`pinfold run` and `pinfold resume`: one turn from the command line."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import click

from pinfold.app import (
    BUILTIN,
    ConfigError,
    Link,
    Opening,
    Options,
    Shelf,
    Standing,
    attach,
    background,
    existing,
    forget_scratch,
    mounts_of,
    named_paths,
    new_session_options,
    own,
    resumed_options,
    spoken,
)
from pinfold.events import (
    ActionId,
    Command,
    Continue,
    Entry,
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
from pinfold.front.cli.showing import JsonLines, Plain, is_closed

BRANCHES = 16
_STOP_S = 10.0
"""How long a turn may take to stop after Ctrl-C before we leave without it."""


class _MoreThanZero(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic in stubs only
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not (math.isfinite(number) and number > 0):
            self.fail(f"{value!r} must be more than 0 and finite", param, ctx)
        return number


MORE_THAN_0 = _MoreThanZero()
mount_option = click.option(
    "--mount", multiple=True, metavar="PATH[:rw]", help="Show this path inside, read-only unless :rw."
)
unmasked_option = click.option(
    "--allow-unmasked",
    is_flag=True,
    help="Let code read the folder's secrets where the sandbox cannot hide them.",
)


mode_option = click.option(
    "--mode", type=click.Choice(["read-only", "ask", "auto", "full"]), help="What may run unasked."
)


def turn_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option(
                "--model",
                help="Which model: PROVIDER:NAME, http://HOST:PORT/v1#NAME, builtin, scripted:FILE, an alias.",
            ),
            click.option("--no-cache", is_flag=True, help="Ask the model even what it has answered before."),
            mode_option,
            click.option("--sandbox", help="Where code runs, by name."),
            click.option(
                "--workspace",
                type=click.Path(path_type=Path),
                help="The folder to work in; this one unless given.",
            ),
            click.option(
                "--data", multiple=True, metavar="[NAME=]PATH", help="Mount read-only at /mnt/datasets/NAME."
            ),
            mount_option,
            unmasked_option,
            click.option("--tools", metavar="A,B", help="Nothing but these tools, by name or pattern."),
            click.option("--no-shell", is_flag=True, help="Without the shell tool."),
            click.option(
                "--allow-host",
                multiple=True,
                metavar="HOST",
                help="May be reached without asking, as `network.allow`.",
            ),
            click.option("--guards", type=click.Choice(["off", "strict"]), help="Guard rails for code."),
            click.option("--timeout", type=MORE_THAN_0, metavar="SECONDS", help="Limit for one cell."),
            click.option(
                "--max-steps", type=click.IntRange(min=1), help="Limit of model replies in the turn."
            ),
            click.option("--max-tokens", type=click.IntRange(min=1), help="Limit of tokens in the turn."),
            click.option(
                "--max-cost", type=MORE_THAN_0, metavar="DOLLARS", help="Limit of cost in the turn."
            ),
            click.option("--max-seconds", type=MORE_THAN_0, help="Limit of time for the turn."),
            click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON."),
            click.option("-q", "--quiet", is_flag=True, help="Print the answer only."),
        ]
    ):
        command = option(command)
    return command


def flags_of(given: dict[str, Any]) -> dict[str, Any]:
    """Command-line flags by the configuration key they stand for."""
    return {
        "model.name": given.get("model"),
        "run.mode": given.get("mode"),
        "sandbox.provider": given.get("sandbox"),
        "sandbox.cell_s": given.get("timeout"),
        "run.max_steps": given.get("max_steps"),
        "run.max_tokens": given.get("max_tokens"),
        "run.max_cost": given.get("max_cost"),
        "run.max_seconds": given.get("max_seconds"),
        "model.cache": False if given.get("no_cache") else None,
        "run.guards": given.get("guards"),
        "tools.enable": _names(given.get("tools")),
        "tools.disable": ("shell",) if given.get("no_shell") else None,
        "network.allow": given.get("allow_host") or None,
    }


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(filter(None, (name.strip() for name in text.split(","))))


def mounted(given: dict[str, Any]) -> dict[str, Any]:
    """What of the host's a session may see, checked, as options of it; None leaves it as it was."""
    return {
        "data": existing(named_paths(given["data"])) if given["data"] else None,
        "mounts": mounts_of(given["mount"]) if given["mount"] else None,
        "allow_unmasked": given["allow_unmasked"],
    }


@click.command("run")
@click.argument("prompt", required=False)
@turn_options
@click.option("--ephemeral", is_flag=True, help="Leave nothing on disk.")
@click.option("--title", help="A name for the session.")
@click.option(
    "--branches",
    type=click.IntRange(2, BRANCHES),
    help="Do it this often at once, each with the files of its own.",
)
@click.option("--check", metavar="CMD", help="The first branch in which this shell command succeeds is kept.")
def run_command(prompt: str | None, ephemeral: bool, title: str | None, **given: Any) -> int:
    """Do one task and print the answer. PROMPT may come from standard input.

    The answer goes to stdout, everything else to stderr. What would need a yes is denied.
    """
    if (given["branches"] is None) != (given["check"] is None):
        raise click.UsageError("--branches and --check belong together: which one is kept, and by what?")
    text = _prompt(prompt)
    session = new_session_id()
    options = new_session_options(session, given["workspace"], flags_of(given))
    options = replace(options, title=title, **mounted(given))
    options = with_model(options)
    if given["branches"]:
        from pinfold.front.cli.racing import raced

        return anyio.run(raced, options, text, None if ephemeral else Shelf(), given)
    folder = None if ephemeral else Shelf().place(session)

    def opening() -> AbstractAsyncContextManager[Link]:
        return own(None, session, options) if folder is None else attach(folder, session, options)

    say = Say(turn=new_turn_id(), text=text)

    def command_for(_: Standing) -> Command:
        return say

    try:
        return anyio.run(_turn, opening, command_for, _shown(given), folder is not None)
    finally:
        if ephemeral:
            forget_scratch(session)


@click.command("resume")
@click.argument("session")
@click.argument("prompt", required=False)
@turn_options
def resume_command(session: str, prompt: str | None, **given: Any) -> int:
    """Go on with a session: with PROMPT, or with the turn that was cut off.

    SESSION is an id, its beginning, a name, or `last`.
    """
    if prompt is not None and not prompt.strip():
        raise click.UsageError("the PROMPT is empty")
    found, folder = Shelf().find(session)
    options = resumed_options(found, folder, given["workspace"], flags_of(given))
    options = replace(options, **mounted(given))
    say = Say(turn=new_turn_id(), text=prompt) if prompt else None

    def command_for(standing: Standing) -> Command:
        if standing.no_model:
            raise ConfigError(standing.no_model)
        return say or _going_on(standing, found)

    return anyio.run(_turn, lambda: attach(folder, found, options), command_for, _shown(given), True)


def with_model(options: Options) -> Options:
    """With one, and its weights here. What that takes is loaded only where it is needed."""
    if not options.model:
        from pinfold.app.choosing import chosen

        model = anyio.run(chosen)
        options = replace(options, model=model.name, notices=(*options.notices, model.why))
    if options.model in BUILTIN:
        from pinfold.front.cli.pulling import fetch

        fetch(str(options.model))
    return options


def _prompt(prompt: str | None) -> str:
    if prompt is not None and prompt != "-":
        text = prompt
    elif is_closed(sys.stdin) or sys.stdin.isatty():
        raise click.UsageError("nothing to do: give a PROMPT, or pipe one in")
    else:
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise click.UsageError("the PROMPT is empty")
    return text


def _shown(given: dict[str, Any]) -> JsonLines | Plain:
    return JsonLines() if given["as_json"] else Plain(quiet=given["quiet"])


async def _turn(
    opening: Opening, command_for: Callable[[Standing], Command], shown: JsonLines | Plain, kept: bool
) -> int:
    async with spoken(opening, command_for) as told, background() as tasks:
        turn = told.command.turn if isinstance(told.command, Say) else told.standing.turn
        tasks.start_soon(stop_on_signal, told.link, turn)
        async for item in told.feed:
            shown.show(item)
            if isinstance(item, Entry) and (code := _exit_code(item, turn)) is not None:
                if code and kept:
                    click.echo(f"pinfold: go on with: pinfold resume {told.link.session}", err=True)
                return code
    return 1


def _going_on(standing: Standing, session: SessionId) -> Say | Continue:
    match standing.end:
        case "open":
            return Continue()
        case "interrupted" | "failed":
            return Say(turn=new_turn_id(), text="Continue.")
        case _:
            raise ConfigError(
                f"{session} has nothing to go on with: give a prompt, pinfold resume {session} PROMPT"
            )


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


async def stop_on_signal(link: Link, target: TurnId | ActionId | None) -> None:
    """Ctrl-C stops what we asked for and keeps the state; a second one, or what will not stop, ends the command."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            break
        click.echo("pinfold: stopping (once more to leave at once)", err=True)
        await link.submit(Interrupt(target=target))
        with anyio.move_on_after(_STOP_S):
            async for _ in signals:
                break
    raise KeyboardInterrupt
