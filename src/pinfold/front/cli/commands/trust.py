"""`pinfold trust`, `policy` and `secret`: what the agent may follow, do and use."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import get_args

import anyio
import click

from pinfold.app import ConfigError, SessionStore, configure, current_folder, trust
from pinfold.app.clients import build_history, entries_on_disk
from pinfold.events import Configure, Json, Mode
from pinfold.front.cli.terminal import confirm, is_closed, show, show_rows, tell
from pinfold.front.flags import PATH
from pinfold.text import exact_line, join_names, pluralize, presentable_line, redact

_OPERATORS = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1")
_WORDS = {"allow": "allowed", "ask": "asked about", "deny": "denied"}
_LONGEST_SECRET = 64 << 10


@click.command("trust")
@click.argument("folder", required=False, type=PATH)
@click.option("--show", is_flag=True, help="Only show the instructions; exit with 1 if they are not trusted.")
@click.option("--forget", "forgets", is_flag=True, help="Stop following this folder's instructions.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--clean", multiple=True, type=PATH, metavar="FILE", help="Accept FILE once you have read it; may be repeated."
)
@click.option("--clean-all", is_flag=True, help="Accept every such file in the folder.")
def trust_command(folder: Path | None, clean: tuple[Path, ...], clean_all: bool, **given: bool) -> int:
    """Let the agent follow the instructions in FOLDER (default: this one): AGENTS.md, pinfold.toml, .mcp.json etc.

    Until you trust them they are ignored; a change to any of them ends the trust.

    Also lists files that the agent wrote after it had read text from elsewhere, such as a web page. They may contain
    that text, so Pinfold asks for your approval more often in this folder. Read them, then accept them with --clean.
    """
    place = folder or current_folder()
    if not place.is_dir():
        raise ConfigError(f"{place} is not a folder")
    if given["forgets"]:
        was = trust.forget(place)
        tell(f"{place} is {'no longer' if was else 'not'} trusted")
        return 0
    if clean or clean_all:
        _clean(place, [place / one for one in clean] or [place])
        return 0
    found = trust.read_project_files(place)
    stands = trust.trust_status(found)
    _show(found, stands)
    is_marked = _show_untrusted(place)
    has_any = bool(found.files or found.odd)
    if stands.trusted or (is_marked and not has_any):
        return 0
    if given["show"]:
        return 1 if has_any else 0
    if found.files and not found.odd:
        confirm("Follow these instructions?", "look at them with --show", yes=given["yes"])
    trust.trust(found)
    tell(f"{found.workspace} is trusted until one of these changes")
    return 0


def _show(found: trust.ProjectFiles, stands: trust.TrustStatus) -> None:
    if not found.files and not found.odd:
        show(f"{found.workspace} has no project instructions")
        return
    for file in found.files:
        mark = "*" if file.name in stands.changed else " "
        first, *more = found.describe_effects(file)
        for line in (f"{mark} {redact(file.name):<16} {first}", *(f"  {line}" for line in more)):
            click.echo(exact_line(line))
    for name, why in found.odd.items():
        show(f"! {name:<16} cannot be trusted: {why}")
    how = "trusted" if stands.trusted else "not trusted"
    if stands.changed:
        how += f"; since {stands.at} changed (*): {join_names(stands.changed, 10)}"
    show(f"{found.workspace} is {how}")


def _show_untrusted(place: Path) -> bool:
    marked = trust.find_untrusted([place])
    for path, mark in sorted(marked.items()):
        about = f"written by {mark.session} until {mark.at}, after it had read outside text"
        show(f"~ {os.path.relpath(path, place.resolve()):<16} {about}")
    if marked:
        show("sessions here count as having read outside text; read these files, then accept each with --clean FILE")
    return bool(marked)


def _clean(place: Path, paths: list[Path]) -> None:
    count = trust.clean(paths)
    if not count:
        there = ", ".join(os.path.relpath(path, place.resolve()) for path in trust.find_untrusted([place])) or "none"
        raise ConfigError(f"no such file is marked as outside text; in {place} there are: {there}")
    tell(f"{pluralize('file', count)} no longer count{'s' * (count == 1)} as outside text")


@click.group("policy")
def policy_command() -> None:
    """Explain the policy, and show or revoke permissions."""


@policy_command.command("explain", context_settings={"ignore_unknown_options": True})
@click.option("--mode", type=click.Choice(get_args(Mode)), default="ask", help="The mode of the session.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def explain_it(mode: Mode, as_json: bool, command: tuple[str, ...]) -> None:
    """Say whether a shell COMMAND is allowed, needs your OK or is denied: `pinfold policy explain -- rm -rf build`.

    Put a command with pipes, variables or globs in quotes, or your shell reads them first: 'ls *.csv | wc -l'.
    """
    # Several words are quoted, except operators, which can only be meant for the shell.
    words = [word if word in _OPERATORS else shlex.quote(word) for word in command]
    explained = trust.explain_command(command[0] if len(command) == 1 else " ".join(words), mode)
    if as_json:
        click.echo(json.dumps(explained))
        return
    for line in _explain_page(explained):
        show(line)


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
        _session_grants(session, pattern, as_json=as_json)
        return
    grants, place = trust.Grants(), workspace.resolve() if workspace else None
    if pattern is not None:
        if not grants.revoke(pattern, place):
            where = f" in {place}" if place else ""
            raise ConfigError(f"{pattern!r} is not granted{where}; `pinfold policy grants` shows what is")
        tell(f"revoked {pattern}")
        return
    found = [one for one in grants.all() if place is None or one.workspace == str(place)]
    rows = ((one, f"{one.pattern}  in {one.workspace}, since {one.at}") for one in found)
    show_rows(rows, as_json=as_json, nothing="No standing permissions.")


def _session_grants(name: str, pattern: str | None, *, as_json: bool) -> None:
    found, folder = SessionStore().find(name)
    granted = sorted(build_history(found, entries_on_disk(found)).state.granted)
    if pattern is None:
        rows = (({"pattern": one, "session": found}, one) for one in granted)
        show_rows(rows, as_json=as_json, nothing=f"{found} has no permissions of its own.")
        return
    if pattern not in granted:
        raise ConfigError(f"{pattern!r} is not granted to {found}; `pinfold policy grants -s {found}` shows what is")
    anyio.run(configure, folder, found, Configure(revoke=(pattern,)))
    tell(f"revoked {pattern}")


def _explain_page(explained: dict[str, Json]) -> list[str]:
    lines = [f"{_WORDS[explained['verdict']]} in mode {explained['mode']}: {explained['reason']}"]
    for command in explained["commands"]:
        lines.append(f"  {'reads ' if command['reads_only'] else 'writes'}  {command['command']}")
        if command["why"]:
            lines.append(f"          {command['why']}")
    lines += [f"  also    {reason}" for reason in explained["besides"]]
    if explained["held_to_reading"]:
        lines.append("  runs with all files read-only; if it has to change one, you are asked")
    if explained["dangerous"]:
        lines.append(f"  danger  {explained['dangerous']}")
    if explained["pattern"]:
        lines.append(f"  'always' would allow: {explained['pattern']}")
    return lines


@click.group("secret")
def secret_command() -> None:
    """Store secrets for tools and requests: used outside the sandbox, by name, for listed hosts only.

    No secret ever enters a session, a prompt or a log.
    """


@secret_command.command("set")
@click.argument("name")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host that may receive it, such as *.example.org.")
@click.option("--header", default="", metavar="FORM", help="Header that `fetch` sends: 'Authorization: Bearer {}'.")
def set_(name: str, hosts: tuple[str, ...], header: str) -> None:
    """Store a secret. You are asked for its value, or it is read from standard input.

    It is only ever sent to the hosts you name with --host. Set it again without --host to keep its hosts.
    """
    for host in hosts:
        trust.host_pattern(host)
    kept = trust.Secrets().set(name, _read_secret(name), hosts, header)
    where = "the keyring" if kept.where == "keyring" else trust.Secrets().path
    tell(f"{kept.name} is stored in {where}, for {_hosts(kept)}")


@secret_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per secret.")
def list_(as_json: bool) -> None:
    """List names, hosts and where each secret is stored; never a value."""
    rows = ((one, f"{one.name:<24} {one.where:<8} {_hosts(one)}") for one in trust.Secrets().all())
    show_rows(rows, as_json=as_json, nothing="No secrets. Store one: pinfold secret set NAME --host HOST")


@secret_command.command("rm")
@click.argument("name")
def rm(name: str) -> None:
    """Delete a secret."""
    trust.Secrets().remove(name)
    tell(f"{name} is deleted")


def _hosts(one: trust.SecretListing) -> str:
    return ", ".join(one.hosts) or f"no host yet (pinfold secret set {one.name} --host HOST)"


def _read_secret(name: str) -> str:
    if is_closed(sys.stdin):
        raise click.UsageError("standard input is closed")
    if sys.stdin.isatty():
        return click.prompt(presentable_line(name), hide_input=True, err=True)
    data = sys.stdin.buffer.read(_LONGEST_SECRET + 1)
    if len(data) > _LONGEST_SECRET:
        raise ConfigError(f"the value of {name} is longer than {_LONGEST_SECRET >> 10} kB")
    try:
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the value of {name} is not UTF-8 text; encode it first") from error
