"""`pinfold mcp`: the user's MCP servers."""

from __future__ import annotations

import json
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import click
from anyio import to_thread

from pinfold.app import ConfigError, background, current_folder
from pinfold.app.config.layers import load_config
from pinfold.app.session.mcp.files import (
    EntryOptions,
    build_entry,
    find_project_server,
    remove_entry,
    spec_of,
    write_entry,
)
from pinfold.app.session.mcp.inspection import (
    ServerFailed,
    ServerInspector,
    ServerListing,
    find_spec,
    forget,
    inspect_servers,
    list_servers,
    load_servers_for,
)
from pinfold.app.session.mcp.placement import registry_hint
from pinfold.app.trust.mcp_reach import describe_server, grant_reach
from pinfold.app.trust.project_files import SERVERS
from pinfold.events import Reach, plain_json
from pinfold.front.cli.commands.mcp_elicitation import TerminalElicitation
from pinfold.front.cli.progress import Spinner
from pinfold.front.cli.turn_output import can_be_redrawn, is_closed
from pinfold.text import presentable, presentable_line

_FAILED_LATELY_S = 24 * 3600


@click.group("mcp")
def mcp_command() -> None:
    """MCP servers whose tools code finds in `servers.NAME`: yours, and those a trusted folder names.

    A server is started when it is first used. What it offers is kept as you first saw it; when it changes, you are asked.
    """


def _tell(text: str) -> None:
    click.echo(presentable(text), err=True)


@mcp_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per server.")
def list_(as_json: bool) -> None:
    """Print every server: where it runs, what it offers, how it failed last. Starts none."""
    named = load_servers_for(current_folder())
    for one in list_servers(named.specs):
        if as_json:
            click.echo(plain_json(_fields(one)))
            continue
        click.echo(presentable_line(_line(one)))
        for line in describe_server(one.spec):
            click.echo(f"    {line}")
    for line in named.faults:
        _tell(line)


def _fields(one: ServerListing) -> dict[str, Any]:
    spec, failure = one.spec, one.failure
    return {
        "name": spec.name,
        "transport": spec.transport,
        "where": one.where,
        "origin": spec.origin,
        "started": list(describe_server(spec)),
        "tools": one.tools,
        "trusted": one.trusted,
        "failed": None if failure is None else {"why": failure.why, "at": failure.at, "until": failure.until},
    }


def _line(one: ServerListing) -> str:
    tools = "never seen" if one.tools is None else f"{one.tools} tools"
    trusted = ", trusted" if one.trusted else ""
    line = f"{one.spec.name:<20} {tools + trusted:<20} {one.where}"
    failure = one.failure
    if failure is None or time.time() - failure.at > _FAILED_LATELY_S:
        return line
    left = failure.until - time.time()
    how = f"left alone for {left:.0f} s" if left > 0 else f"failed {time.time() - failure.at:.0f} s ago"
    return f"{line}; {how}: {failure.why}"


@mcp_command.command("add", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("what", nargs=-1, required=True, metavar="(URL | -- COMMAND [ARGS]...)")
@click.option(
    "--env",
    "env",
    multiple=True,
    metavar="NAME=VALUE",
    help="For its environment; ${NAME} is filled in when it starts.",
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Sent with each request; ${NAME} as well."
)
@click.option("--transport", type=click.Choice(["stdio", "http", "sse"]), help="How it is spoken to.")
@click.option(
    "--reach",
    type=click.Choice(["nothing", "files", "workspace", "network", "outside"]),
    help="All it needs: it runs in a sandbox of its own, unless `outside`.",
)
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="That it may reach from there.")
@click.option("--no-check", is_flag=True, help="Do not start it now.")
def add(name: str, no_check: bool, **given: Any) -> None:
    """Add a server to your own, look at it once, and print what it offers.

    \b
    pinfold mcp add files -- npx -y @modelcontextprotocol/server-filesystem /data
    pinfold mcp add github https://api.githubcopilot.com/mcp/ --header 'Authorization=Bearer ${GITHUB_TOKEN}'
    """
    entry = build_entry(EntryOptions(**given))
    folder = current_folder()
    if any(one.name == name.replace("-", "_") for one in load_servers_for(folder).specs):
        raise ConfigError(f"there is a server {name!r} already; remove it first: pinfold mcp remove {name}")
    spec = spec_of(name, entry)
    if no_check:
        write_entry(name, entry)
        _tell(f"{spec.name} is added and was not looked at: what it offers is taken as it is when it is first used")
        return

    if hint := registry_hint(spec):
        _tell(hint)

    async def look() -> None:
        async with inspect_servers((spec,), folder, TerminalElicitation()) as found:
            try:
                await _connect_server(found, spec.name)
            except ServerFailed as failure:
                forget(spec)
                why = str(failure).replace(f" in {spec.origin}", "")  # which has no such entry
                raise ServerFailed(f"{why}; nothing was added (--no-check adds it all the same)") from None
            write_entry(name, entry)
            _tell(f"{spec.name} is added; in code it is servers.{spec.name}")
            _print_tools(found, spec.name)
            later = f"each call is asked about; to trust what it says of its tools: pinfold mcp trust {name}"
            if not _can_ask():
                _tell(later)
                return
            click.echo("\n".join([*describe_server(spec), presentable(describe_annotations(found, spec.name))]))
            if await to_thread.run_sync(_agrees, f"Trust what {spec.name} says of its tools?"):
                _trust(found, spec.name)
            else:
                _tell(later)

    anyio.run(look)


@mcp_command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Forget a server of your own, with what was agreed to and its sign-in."""
    known = [
        spec for spec in load_servers_for(current_folder()).specs if name in (spec.name, spec.name.replace("_", "-"))
    ]
    remove_entry(name)
    for spec in known:
        forget(spec)
    _tell(f"{name} is removed")


@mcp_command.command("trust")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--reach",
    type=click.Choice(["nothing", "workspace", "network", "outside"]),
    help="How far a project's server may reach; `outside` runs it on this machine, as you.",
)
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="That it may reach from its sandbox.")
def trust(name: str, yes: bool, reach: Reach | None, hosts: tuple[str, ...]) -> int:
    """Agree to what a server offers now, and believe what it says of its tools.

    Shows how it is started, what has changed since you last agreed, and which tools say that they only read: these are
    no longer asked about. A project's server runs in a sandbox; --reach and --host give it more.
    """
    folder = current_folder()
    if reach or hosts:
        _give_reach(folder, name, reach or "network", hosts, yes=yes)
    spec = find_spec(load_servers_for(folder), name)
    for line in describe_server(spec):
        click.echo(line)

    async def look() -> int:
        async with inspect_servers((spec,), folder, TerminalElicitation()) as found:
            await _connect_server(found, spec.name)
            difference = found.difference(spec.name)
            if found.is_trusted(spec.name) and not difference:
                _tell(f"{spec.name} is trusted as it is")
                return 0
            click.echo(presentable(difference.text if difference else describe_annotations(found, spec.name)))
            if not yes:
                _confirm(f"Agree to all of this of {spec.name}?")
            _trust(found, spec.name)
            return 0

    return anyio.run(look)


def _trust(found: ServerInspector, name: str) -> None:
    found.trust(name)
    _tell(f"{name} is trusted, as long as none of it changes")


def _give_reach(folder: Path, name: str, reach: Reach, hosts: tuple[str, ...], *, yes: bool) -> None:
    if hosts and reach != "network":
        raise click.UsageError(f"--host goes with --reach network, not {reach}")
    if reach == "network" and not hosts:
        raise click.UsageError("--reach network needs --host HOST, what it may reach")
    project = load_config(folder).obeyed.get(SERVERS)
    spec = find_project_server(project, str(folder / SERVERS), name) if project else None
    if spec is None:
        raise ConfigError(
            f"{folder / SERVERS} names no server {name!r}, or is not trusted yet; "
            "what your own servers reach is in their entry: pinfold mcp add"
        )
    for line in describe_server(replace(spec, reach=reach, hosts=hosts)):
        click.echo(line)
    if not yes:
        _confirm(f"Let {spec.name} run so?")
    grant_reach(spec, reach, hosts)


def describe_annotations(found: ServerInspector, name: str) -> str:
    """What trust would take at its word."""
    lines = [f"{name} says of its tools:"]
    for tool, said in found.annotations(name).items():
        words = [words for key, words in _ANNOTATIONS.items() if said.get(key) is True]
        lines.append(f"  {tool}: {', '.join(words) or 'nothing, so that each call is asked about'}")
    return "\n".join(lines)


_ANNOTATIONS = {
    "readOnlyHint": "only reads",
    "destructiveHint": "may destroy",
    "idempotentHint": "can be repeated",
    "openWorldHint": "reaches others",
}


def _can_ask() -> bool:
    return not is_closed(sys.stdin) and sys.stdin.isatty()


def _agrees(question: str) -> bool:
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before it was asked is no answer
    return click.confirm(presentable_line(question), err=True)


def _confirm(question: str) -> None:
    if not _can_ask():
        raise click.UsageError("nobody is there to ask; look at it first, then add --yes")
    if not _agrees(question):
        raise click.Abort


@mcp_command.command("call")
@click.argument("tool", metavar="SERVER[.TOOL]")
@click.argument("args", nargs=-1, metavar="[JSON | NAME=VALUE ...]")
@click.option("--json", "as_json", is_flag=True, help="Print the value as JSON.")
def call(tool: str, args: tuple[str, ...], as_json: bool) -> None:
    """Call a tool yourself and print what it gives; with a server alone, print its tools."""
    folder = current_folder()
    server, _, name = tool.partition(".")
    spec = find_spec(load_servers_for(folder), server)
    if not name and args:
        raise click.UsageError(f"which tool of {server}? Write {server}.TOOL")

    async def look() -> None:
        async with inspect_servers((spec,), folder, TerminalElicitation()) as found:
            await _connect_server(found, spec.name)
            if not name:
                _print_tools(found, spec.name, as_json=as_json)
                return
            result = await found.call(spec.name, name, _arguments(found, spec.name, name, args))
            shown = plain_json(_plain(result.value)) if as_json else result.text
            click.echo(presentable(shown) if sys.stdout.isatty() and not as_json else shown)

    anyio.run(look)


def _plain(value: Any) -> Any:
    """Bytes as base64."""
    import base64

    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_plain(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _arguments(found: ServerInspector, server: str, tool: str, args: Sequence[str]) -> Mapping[str, Any]:
    if len(args) == 1 and args[0].lstrip().startswith("{"):
        try:
            given = json.loads(args[0])
        except ValueError as error:
            raise click.UsageError(f"the arguments are no JSON: {error}") from error
        return given
    properties = found.properties(server, tool)
    values: dict[str, Any] = {}
    for arg in args:
        name, equals, text = arg.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{arg!r} is no argument: write NAME=VALUE, or all of them as one JSON object")
        values[name] = text if properties.get(name, {}).get("type") == "string" else _value(text)
    return values


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _connect_server(found: ServerInspector, name: str) -> None:
    # A server elsewhere may have the user sign in meanwhile, in whose way nothing is drawn.
    is_drawn = found.is_program(name) and can_be_redrawn(sys.stderr)
    spinner = Spinner(f"starting {name}")
    try:
        async with background() as tasks:
            if is_drawn:
                tasks.start_soon(spinner.spin)
            failed = await found.connect(name)
    finally:
        spinner.clear()
    if failed:
        raise ServerFailed(failed[name])


def _print_tools(found: ServerInspector, name: str, *, as_json: bool = False) -> None:
    for one in found.list_offers(name):
        if as_json:
            click.echo(plain_json(one.fields))
        else:
            held = " [changed: pinfold mcp trust]" if one.held else ""
            click.echo(presentable_line(f"{one.signature}{held}"))
            if one.summary:
                click.echo(presentable_line(f"    {one.summary}"))
