"""`pinfold mcp`: the user's MCP servers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec
from anyio import to_thread

from pinfold.app import ConfigError, background, current_folder, load_config
from pinfold.app.session import mcp
from pinfold.app.trust import SERVERS, describe_server, grant_reach
from pinfold.events import Json, Reach, plain_json
from pinfold.front.cli.terminal import agrees, can_be_redrawn, confirm, is_terminal, show, tell
from pinfold.front.pages import annotations_page
from pinfold.front.progress import Spinner
from pinfold.text import presentable, presentable_line

_FAILED_LATELY_S = 24 * 3600


@click.group("mcp")
def mcp_command() -> None:
    """Manage MCP servers: your own, and those of trusted folders. Code calls their tools as `servers.NAME.TOOL`.

    A server starts when it is first used. If its tools change later, you are asked before the new ones are used.
    """


def _tell(text: str) -> None:
    click.echo(presentable(text), err=True)


@mcp_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per server.")
def list_(as_json: bool) -> None:
    """List servers: where each runs, its tools, its last failure. Starts none of them."""
    named = mcp.load_servers_for(current_folder())
    listed = mcp.list_servers(named.specs)
    for one in listed:
        if as_json:
            click.echo(plain_json(_fields(one)))
            continue
        show(_line(one))
        for line in describe_server(one.spec):
            click.echo(f"    {line}")
    for line in named.faults:
        _tell(line)
    if not (listed or named.faults or as_json):
        _tell("No MCP servers. Add one: pinfold mcp add NAME (URL | -- COMMAND)")


def _fields(one: mcp.ServerListing) -> dict[str, Json]:
    spec = one.spec
    return {
        "name": spec.name,
        "transport": spec.transport,
        "where": one.where,
        "origin": spec.origin,
        "started": list(describe_server(spec)),
        "tools": one.tools,
        "trusted": one.trusted,
        "failed": one.failure,
    }


def _line(one: mcp.ServerListing) -> str:
    tools = "tools not read yet" if one.tools is None else f"{one.tools} tools"
    trusted = ", trusted" if one.trusted else ""
    line = f"{one.spec.name:<20} {tools + trusted:<20} {one.where}"
    failure = one.failure
    if failure is None or time.time() - failure.at > _FAILED_LATELY_S:
        return line
    left = failure.until - time.time()
    how = f"not retried for {left:.0f} s" if left > 0 else f"failed {time.time() - failure.at:.0f} s ago"
    return f"{line}; {how}: {failure.why}"


@mcp_command.command("add", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("what", nargs=-1, required=True, metavar="(URL | -- COMMAND [ARGS]...)")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; ${NAME} is filled in at start.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="HTTP header; ${NAME} is filled in.")
@click.option("--transport", type=click.Choice(["stdio", "http", "sse"]), help="Transport; guessed unless given.")
@click.option(
    "--reach",
    type=click.Choice(["nothing", "files", "workspace", "network", "outside"]),
    help="What the server may use. It runs in its own sandbox, unless `outside`.",
)
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host the sandboxed server may contact.")
@click.option("--no-check", is_flag=True, help="Add it without starting it.")
def add(name: str, no_check: bool, **given: Any) -> None:
    """Add a server, start it once, and print its tools.

    \b
    pinfold mcp add files -- npx -y @modelcontextprotocol/server-filesystem /data
    pinfold mcp add github https://api.githubcopilot.com/mcp/ --header 'Authorization=Bearer ${GITHUB_TOKEN}'
    """
    entry = mcp.build_entry(**given)
    folder = current_folder()
    if any(one.name == name.replace("-", "_") for one in mcp.load_servers_for(folder).specs):
        raise ConfigError(f"there is a server {name!r} already; remove it first: pinfold mcp remove {name}")
    spec = mcp.spec_of(name, entry)
    if no_check:
        mcp.write_entry(name, entry)
        _tell(f"{spec.name} is added but not checked: Pinfold will accept the tools that it has at first use")
        return

    if hint := mcp.registry_hint(spec):
        _tell(hint)

    async def look() -> None:
        async with mcp.inspect_servers((spec,), folder, TerminalElicitation()) as found:
            try:
                await _connect_server(found, spec.name)
            except mcp.ServerFailed as failure:
                mcp.forget(spec)
                why = str(failure).replace(f" in {spec.origin}", "")  # the file has no such entry
                raise mcp.ServerFailed(f"{why}; nothing was added (--no-check adds it anyway)") from None
            mcp.write_entry(name, entry)
            _tell(f"{spec.name} is added; code calls it as servers.{spec.name}")
            _print_tools(found, spec.name)
            later = f"you are asked about each call; to trust what it says about its tools: pinfold mcp trust {name}"
            if not is_terminal(sys.stdin):
                _tell(later)
                return
            for line in describe_server(spec):
                click.echo(line)
            click.echo(presentable(annotations_page(spec.name, found.annotations(spec.name))))
            if await to_thread.run_sync(agrees, f"Trust what {spec.name} says about its tools?"):
                _trust(found, spec.name)
            else:
                _tell(later)

    anyio.run(look)


@mcp_command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Remove one of your servers. Pinfold also forgets that you trusted it, and signs you out of it."""
    known = mcp.load_servers_for(current_folder()).specs
    mcp.remove_entry(name)
    for spec in known:
        if name in (spec.name, spec.name.replace("_", "-")):
            mcp.forget(spec)
    _tell(f"{name} is removed")


@mcp_command.command("trust")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--reach",
    type=click.Choice(["nothing", "workspace", "network", "outside"]),
    help="What a project's server may use; `outside` runs it without a sandbox, as you.",
)
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host the sandboxed server may contact.")
def trust(name: str, yes: bool, reach: Reach | None, hosts: tuple[str, ...]) -> None:
    """Accept a server's tools as they are now, and believe what it says about them.

    Shows how the server starts, what has changed since you last agreed, and which tools only read, by its own account:
    calls of those no longer need your approval. A project's server runs in a sandbox; --reach and --host give it more
    access.
    """
    folder = current_folder()
    if reach or hosts:
        _give_reach(folder, name, reach or "network", hosts, yes=yes)
    spec = mcp.find_spec(mcp.load_servers_for(folder), name)
    for line in describe_server(spec):
        click.echo(line)

    async def look() -> None:
        async with mcp.inspect_servers((spec,), folder, TerminalElicitation()) as found:
            await _connect_server(found, spec.name)
            difference = found.difference(spec.name)
            if found.is_trusted(spec.name) and not difference:
                _tell(f"{spec.name} is already trusted")
                return
            page = difference.text if difference else annotations_page(spec.name, found.annotations(spec.name))
            click.echo(presentable(page))
            confirm(f"Accept all of this for {spec.name}?", yes=yes)
            _trust(found, spec.name)

    anyio.run(look)


def _trust(found: mcp.ServerInspector, name: str) -> None:
    found.trust(name)
    _tell(f"{name} is trusted until it changes")


def _give_reach(folder: Path, name: str, reach: Reach, hosts: tuple[str, ...], *, yes: bool) -> None:
    if hosts and reach != "network":
        raise click.UsageError(f"--host goes with --reach network, not {reach}")
    if reach == "network" and not hosts:
        raise click.UsageError("--reach network needs --host HOST")
    project = load_config(folder).obeyed.get(SERVERS)
    spec = mcp.find_project_server(project, str(folder / SERVERS), name) if project else None
    if spec is None:
        raise ConfigError(
            f"{folder / SERVERS} has no server {name!r}, or is not trusted yet; "
            "set --reach of your own servers with pinfold mcp add"
        )
    for line in describe_server(replace(spec, reach=reach, hosts=hosts)):
        click.echo(line)
    confirm(f"Let {spec.name} run like this?", yes=yes)
    grant_reach(spec, reach, hosts)


@mcp_command.command("call")
@click.argument("tool", metavar="SERVER[.TOOL]")
@click.argument("args", nargs=-1, metavar="[JSON | NAME=VALUE ...]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def call(tool: str, args: tuple[str, ...], as_json: bool) -> None:
    """Call a tool and print its result; without a tool, print the server's tools."""
    folder = current_folder()
    server, _, name = tool.partition(".")
    spec = mcp.find_spec(mcp.load_servers_for(folder), server)
    if not name and args:
        raise click.UsageError(f"which tool of {server}? Write {server}.TOOL")

    async def look() -> None:
        async with mcp.inspect_servers((spec,), folder, TerminalElicitation()) as found:
            await _connect_server(found, spec.name)
            if not name:
                _print_tools(found, spec.name, as_json=as_json)
                return
            result = await found.call(spec.name, name, _arguments(found, spec.name, name, args))
            if as_json:
                click.echo(plain_json(msgspec.to_builtins(result.value)))
            else:
                click.echo(presentable(result.text) if sys.stdout.isatty() else result.text)

    anyio.run(look)


def _arguments(found: mcp.ServerInspector, server: str, tool: str, args: Sequence[str]) -> Mapping[str, Json]:
    if len(args) == 1 and args[0].lstrip().startswith("{"):
        try:
            return json.loads(args[0])
        except ValueError as error:
            raise click.UsageError(f"the arguments are not valid JSON: {error}") from error
    properties = found.properties(server, tool)
    values: dict[str, Json] = {}
    for arg in args:
        name, equals, text = arg.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{arg!r} is not an argument: write NAME=VALUE, or one JSON object")
        values[name] = text if properties.get(name, {}).get("type") == "string" else _value(text)
    return values


def _value(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _connect_server(found: mcp.ServerInspector, name: str) -> None:
    # No spinner for a remote server: it may ask the user to sign in.
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
        raise mcp.ServerFailed(failed[name])


def _print_tools(found: mcp.ServerInspector, name: str, *, as_json: bool = False) -> None:
    for one in found.list_offers(name):
        if as_json:
            click.echo(plain_json(one))
        else:
            held = " [changed: pinfold mcp trust]" if one.held else ""
            show(f"{one.signature}{held}")
            if one.summary:
                show(f"    {one.summary}")


class TerminalElicitation:
    """Answers questions that a server asks the user. Declines if there is no terminal."""

    @property
    def _is_there(self) -> bool:
        return is_terminal(sys.stdin) and is_terminal(sys.stderr)

    async def elicit(self, server: str, message: str, schema: Mapping[str, Json]) -> Mapping[str, Json] | None:
        fields = mcp.fields_of(schema)
        if not self._is_there or fields is None:
            return None
        _tell(f"{server} asks: {message}")
        filled: dict[str, Json] = {}
        for field in fields:
            found = await to_thread.run_sync(_field, field)
            if found is None:
                return None
            filled |= found
        if not fields and not mcp.is_yes(await to_thread.run_sync(_prompt, "yes or no")):
            return None
        return filled

    async def open_page(self, server: str, url: str, why: str) -> bool:
        """Print the address and never open it, so that the user first sees where it leads."""
        if not self._is_there:
            tell(f"{server} wants you to open a page ({why}), which needs a terminal: {url}")
            return False
        _tell(f"{why}: open this page in your browser\n  {url}")
        return True


def _prompt(words: str) -> str:
    return click.prompt(presentable_line(words), default="", show_default=False, err=True)


def _field(field: mcp.Field) -> dict[str, Json] | None:
    """Ask for one field. Returns {} if it was left out; None if a required answer is missing."""
    choices = f" [{', '.join(field.options)}]" if field.options else ""
    words = _prompt(f"{field.question}{choices}")
    if not words.strip():
        return None if field.is_required else {}
    try:
        return {field.name: field.value(words)}
    except mcp.InvalidAnswer as error:
        tell(str(error))
        return _field(field)
