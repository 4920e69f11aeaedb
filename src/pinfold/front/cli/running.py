"""`pinfold run` and `pinfold resume`: one turn from the command line."""

from __future__ import annotations

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
    ConfigError,
    Link,
    Shelf,
    Standing,
    attach,
    background,
    load_config,
    new_session_options,
    own,
    resumed_options,
    start_operator_log,
    take,
)
from pinfold.events import (
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
from pinfold.front.cli.showing import JsonLines, Plain

_STOP_S = 10.0
"""How long a turn may take to stop after Ctrl-C before we leave without it."""


def turn_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option("--model", help="Which model: scripted:FILE or replay:FILE."),
            click.option(
                "--mode",
                type=click.Choice(["read-only", "ask", "auto", "full"]),
                help="What may run unasked.",
            ),
            click.option("--sandbox", help="Where code runs, by name."),
            click.option(
                "--workspace",
                type=click.Path(path_type=Path),
                help="The folder to work in; this one unless given.",
            ),
            click.option("--timeout", type=float, metavar="SECONDS", help="Limit for one cell."),
            click.option("--max-steps", type=int, help="Limit of model replies in the turn."),
            click.option("--max-tokens", type=int, help="Limit of tokens in the turn."),
            click.option("--max-cost", type=float, metavar="DOLLARS", help="Limit of cost in the turn."),
            click.option("--max-seconds", type=float, help="Limit of time for the turn."),
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
    }


@click.command("run")
@click.argument("prompt", required=False)
@turn_options
@click.option("--ephemeral", is_flag=True, help="Leave nothing on disk.")
@click.option("--title", help="A name for the session.")
def run_command(prompt: str | None, ephemeral: bool, title: str | None, **given: Any) -> int:
    """Do one task and print the answer. PROMPT may come from standard input.

    The answer goes to stdout, everything else to stderr. What would need a yes is denied.
    """
    start_operator_log(load_config().config.log.level)
    text = _prompt(prompt)
    session = new_session_id()
    options = replace(new_session_options(session, given["workspace"], flags_of(given)), title=title)
    if not options.model:
        raise ConfigError("no model is configured; name one with --model, e.g. --model scripted:FILE")
    folder = None if ephemeral else Shelf().place(session)
    opened = own(None, session, options) if folder is None else take(folder, session, options)
    say = Say(turn=new_turn_id(), text=text)
    return anyio.run(_turn, opened, say, _shown(given), folder is not None)


@click.command("resume")
@click.argument("session")
@click.argument("prompt", required=False)
@turn_options
def resume_command(session: str, prompt: str | None, **given: Any) -> int:
    """Go on with a session: with PROMPT, or with the turn that was cut off.

    SESSION is an id, its beginning, a name, or `last`.
    """
    start_operator_log(load_config().config.log.level)
    found, folder = Shelf().find(session)
    options = resumed_options(given["workspace"], flags_of(given))
    command = Say(turn=new_turn_id(), text=prompt) if prompt else None
    return anyio.run(_turn, attach(folder, found, options), command, _shown(given), True)


def _prompt(prompt: str | None) -> str:
    if prompt is not None and prompt != "-":
        text = prompt
    elif sys.stdin.isatty():
        raise click.UsageError("nothing to do: give a PROMPT, or pipe one in")
    else:
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise click.UsageError("the PROMPT is empty")
    return text


def _shown(given: dict[str, Any]) -> JsonLines | Plain:
    return JsonLines() if given["as_json"] else Plain(quiet=given["quiet"])


async def _turn(
    opened: AbstractAsyncContextManager[Link], command: Say | None, shown: JsonLines | Plain, kept: bool
) -> int:
    async with opened as link, background() as tasks:
        standing = await link.standing()
        wanted = command or _going_on(standing, link.session)
        turn = wanted.turn if isinstance(wanted, Say) else standing.turn
        tasks.start_soon(stop_on_signal, link)
        async with link.subscribe(standing.seq) as feed:
            await link.submit(wanted)
            async for item in feed:
                shown.show(item)
                if isinstance(item, Entry) and (code := _exit_code(item, turn)) is not None:
                    if code and kept:
                        click.echo(f"pinfold: go on with: pinfold resume {link.session}", err=True)
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


async def stop_on_signal(link: Link) -> None:
    """Ctrl-C stops the turn and keeps the state; a second one, or a turn that will not stop, ends the command."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            break
        click.echo("pinfold: stopping the turn (once more to leave at once)", err=True)
        await link.submit(Interrupt())
        with anyio.move_on_after(_STOP_S):
            async for _ in signals:
                break
    raise KeyboardInterrupt
