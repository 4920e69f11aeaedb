"""`pinfold policy`: explain decisions; show and revoke permissions."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, cast, get_args

import anyio
import click

from pinfold.app import ConfigError, SessionStore, revoke
from pinfold.app.clients import build_history, entries_on_disk
from pinfold.app.trust import Grants, explain_command
from pinfold.events import Mode
from pinfold.front.flags import PATH
from pinfold.text import presentable_line

_OPERATORS = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1")
_WORDS = {"allow": "allowed", "ask": "asked about", "deny": "denied"}


@click.group("policy")
def policy_command() -> None:
    """Explain the policy, and show or revoke permissions."""


@policy_command.command("explain", context_settings={"ignore_unknown_options": True})
@click.option("--mode", type=click.Choice(get_args(Mode)), default="ask", help="The mode of the session.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def explain_it(mode: str, as_json: bool, command: tuple[str, ...]) -> None:
    """Say whether a shell COMMAND is allowed, needs your OK or is denied: `pinfold policy explain -- rm -rf build`.

    A single argument is used as it is; several are quoted and joined, except for operators such as `&&`.
    """
    text = command[0] if len(command) == 1 else " ".join(map(_word, command))
    told = explain_command(text, cast(Mode, mode))
    if as_json:
        click.echo(json.dumps(told))
        return
    for line in _page(told):
        click.echo(presentable_line(line))


@policy_command.command("grants")
@click.option("--revoke", "pattern", metavar="PATTERN", help="Revoke this permission.")
@click.option("--workspace", type=PATH, help="Only for this folder. Default: all folders.")
@click.option("-s", "--session", help="Permissions of this session: an id, a name, or `last`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per permission.")
def grants_command(pattern: str | None, workspace: Path | None, session: str | None, as_json: bool) -> None:
    """Show permissions that you granted for good, or to a session, or revoke one."""
    if session is not None:
        if workspace is not None:
            raise click.UsageError("--session and --workspace cannot be combined")
        _of_session(session, pattern, as_json=as_json)
        return
    grants, place = Grants(), workspace.resolve() if workspace else None
    if pattern is not None:
        if not grants.revoke(pattern, place):
            where = f" in {place}" if place else ""
            raise ConfigError(f"{pattern!r} is not granted{where}; `pinfold policy grants` shows what is")
        click.echo(f"revoked {presentable_line(pattern)}", err=True)
        return
    found = [one for one in grants.all() if place is None or one.workspace == str(place)]
    for one in found:
        fields = {"pattern": one.pattern, "workspace": one.workspace, "at": one.at}
        line = f"{one.pattern}  in {one.workspace}, since {one.at}"
        click.echo(json.dumps(fields) if as_json else presentable_line(line))
    if not found and not as_json:
        click.echo("No standing permissions.", err=True)


def _of_session(name: str, pattern: str | None, *, as_json: bool) -> None:
    found, folder = SessionStore().find(name)
    granted = sorted(build_history(found, entries_on_disk(found)).state.granted)
    if pattern is not None:
        if pattern not in granted:
            raise ConfigError(
                f"{pattern!r} is not granted to {found}; `pinfold policy grants -s {found}` shows what is"
            )
        anyio.run(revoke, folder, found, pattern)
        click.echo(f"revoked {presentable_line(pattern)}", err=True)
        return
    for one in granted:
        click.echo(json.dumps({"pattern": one, "session": found}) if as_json else presentable_line(one))
    if not granted and not as_json:
        click.echo(f"{found} has no permissions of its own.", err=True)


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
    if told["held_to_reading"]:
        lines.append("  runs with all files read-only; if it has to change one, it is asked about")
    if told["dangerous"]:
        lines.append(f"  danger  {told['dangerous']}")
    if told["pattern"]:
        lines.append(f"  'always' would allow: {told['pattern']}")
    return lines
