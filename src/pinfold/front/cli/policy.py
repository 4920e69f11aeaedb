"""`pinfold policy`: what policy would say, and why."""

from __future__ import annotations

import json
import shlex
from typing import Any, cast, get_args

import click

from pinfold.app.policies import explain_command
from pinfold.events import Mode
from pinfold.text import printable

_OPERATORS = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1")
_WORDS = {"allow": "allowed", "ask": "asked about", "deny": "denied"}


@click.group("policy")
def policy_command() -> None:
    """Say what policy would do, and why."""


@policy_command.command("explain", context_settings={"ignore_unknown_options": True})
@click.option("--mode", type=click.Choice(get_args(Mode)), default="ask", help="The mode of the session.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def explain_it(mode: str, as_json: bool, command: tuple[str, ...]) -> None:
    """Say whether a shell COMMAND would be allowed, asked about or denied: `pinfold policy explain -- rm -rf build`.

    One argument is taken as it is; several are quoted and put together, but for operators such as `&&`.
    """
    text = command[0] if len(command) == 1 else " ".join(map(_word, command))
    told = explain_command(text, cast(Mode, mode))
    if as_json:
        click.echo(json.dumps(told))
        return
    for line in _page(told):
        click.echo(printable(line))


def _word(text: str) -> str:
    """Quoted, unless it can only have been meant for the shell."""
    return text if text in _OPERATORS else shlex.quote(text)


def _page(told: dict[str, Any]) -> list[str]:
    lines = [f"{_WORDS[told['verdict']]} in mode {told['mode']}: {told['reason']}"]
    for command in told["commands"]:
        lines.append(f"  {'reads ' if command['reads_only'] else 'writes'}  {command['command']}")
        if command["why"]:
            lines.append(f"          {command['why']}")
    lines += [f"  also    {reason}" for reason in told["besides"]]
    if told["dangerous"]:
        lines.append(f"  danger  {told['dangerous']}")
    if told["pattern"]:
        lines.append(f"  'always' would allow: {told['pattern']}")
    return lines
