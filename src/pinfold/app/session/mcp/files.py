"""Reads and edits where MCP servers are named: the user's file, a trusted workspace's, entries that the user typed."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import cast

from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, explain_errors, hold_file_lock, read_private, write_private
from pinfold.app.session.catalogue import OWN_MODULES
from pinfold.app.session.mcp.credentials import NotSet, fill_variables, has_variables
from pinfold.app.trust.mcp_reach import apply_reach
from pinfold.events import Json
from pinfold.tools.mcp.spec import ServerSpec, module_name, read_servers

_KEY = "mcpServers"
CLIENT = "the editor"
"""The origin of servers that an editor names."""


class NamedServers(Struct, frozen=True, kw_only=True):
    """Servers a session may use, and one line for each that it may not."""

    specs: tuple[ServerSpec, ...] = ()
    faults: tuple[str, ...] = ()


def user_file() -> Path:
    return config_dir() / "mcp.json"


def load_servers(
    project: bytes | None = None,
    origin: str = ".mcp.json",
    more: tuple[str, bytes] | None = None,
    client: bytes | None = None,
) -> NamedServers:
    """Load the servers of all sources. On the same name, the first wins: caller, user, workspace, editor.

    `project`: a trusted workspace's file. `client`: an editor's servers, with the same limits. `more`: the caller's, as
    `read_extra_servers` returns them. Raises ConfigError for a fault in the caller's.
    """
    found: dict[str, ServerSpec] = {}
    if more is not None:
        where, content = more
        mine = _fill_specs(*read_servers(content, where))
        if mine.faults:
            raise ConfigError(mine.faults[0])
        found |= {spec.name: spec for spec in mine.specs}
    try:
        own = read_private(user_file())
        named = NamedServers() if own is None else _fill_specs(*read_servers(own, str(user_file())))
    except ConfigError as error:
        named = NamedServers(faults=(str(error),))
    found |= {spec.name: spec for spec in named.specs if spec.name not in found}
    faults = [*named.faults]
    for data, where in ((project, origin), (client, CLIENT)):
        specs, wrong = ((), ()) if data is None else read_servers(data, where)
        faults += wrong
        for spec in specs:
            why = ""
            if spec.name in found:
                why = f"{found[spec.name].origin} has a server of that name too"
            elif spec.name in OWN_MODULES:
                why = f"Pinfold's own tools have that name; rename it, or put it into {user_file()}"
            elif has_variables(spec):
                why = f"variables are filled in only for your own servers; put it into {user_file()}"
            if why:
                faults.append(f"{where}: {spec.name} is not used: {why}")
                continue
            found[spec.name] = mine = apply_reach(spec)
            if mine.wants:
                faults.append(
                    f"{where}: {spec.name} wants {mine.wants}, which is not granted; "
                    f"to allow that: pinfold mcp trust {spec.name} {mine.gives}"
                )
    return NamedServers(specs=tuple(found.values()), faults=tuple(faults))


def find_project_server(project: bytes, origin: str, name: str) -> ServerSpec | None:
    """Return the server as the project's file has it, before its reach is limited; None if it is not there."""
    specs, _ = read_servers(project, origin)
    return next((spec for spec in specs if spec.name == module_name(name)), None)


def read_extra_servers(more: str | PathLike[str] | Mapping[str, Json]) -> tuple[str, bytes]:
    """Read a file, a table with `mcpServers`, or just its entries. Returns origin and content. Raises ConfigError."""
    if not isinstance(more, Mapping):
        with explain_errors(f"{fspath(more)} cannot be read"):
            return fspath(more), Path(more).read_bytes()
    try:
        return "mcp", json.dumps(more if _KEY in more else {_KEY: dict(more)}).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"mcp: {error}; give a path, or a table of names and entries") from error


def client_servers(named: Iterable[Mapping[str, Json]]) -> tuple[bytes | None, tuple[str, ...]]:
    """Convert servers of the Agent Client Protocol to a file's content. Also returns a line for each left out."""
    entries: dict[str, Json] = {}
    left_out: list[str] = []
    for one in named:
        match one:
            case {"name": str(name), "command": str(command), **rest}:
                env = _named_values(rest.get("env"))
                entries[name] = {"command": command, "args": rest.get("args") or [], "env": env, "reach": "workspace"}
            case {"name": str(name), "type": "http", "url": str(url), **rest}:
                entries[name] = {"type": "http", "url": url, "headers": _named_values(rest.get("headers"))}
            case _:
                left_out.append(
                    f"{CLIENT}: {one.get('name', 'a server')!r} is not used: only stdio and http are supported"
                )
    return (json.dumps({_KEY: entries}).encode() if entries else None), tuple(left_out)


def _named_values(pairs: Json) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for pair in cast("list[Json]", pairs or []):
        match pair:
            case {"name": str(name), "value": value}:
                found[name] = value
            case _:
                pass
    return found


def _fill_specs(specs: Iterable[ServerSpec], faults: Iterable[str]) -> NamedServers:
    kept: list[ServerSpec] = []
    said = list(faults)
    for spec in specs:
        try:
            kept.append(fill_variables(spec))
        except (NotSet, ConfigError) as error:
            said.append(f"{spec.origin}: {spec.name} is not used: {error}")
    return NamedServers(specs=tuple(kept), faults=tuple(said))


def spec_of(name: str, entry: Mapping[str, Json]) -> ServerSpec:
    """Build the spec of an entry, as if the user's file had it. Raises ConfigError."""
    found = _fill_specs(*read_servers(json.dumps({_KEY: {name: dict(entry)}}).encode(), str(user_file())))
    if found.faults:
        raise ConfigError(found.faults[0].removeprefix(f"{user_file()}: "))
    return found.specs[0]


def write_entry(name: str, entry: Mapping[str, Json]) -> None:
    """Put a server into the user's file, in place of one of that name. Raises ConfigError."""
    with _edit_entries() as entries:
        for other in [key for key in entries if module_name(key) == module_name(name)]:
            del entries[other]
        entries[name] = dict(entry)


def remove_entry(name: str) -> None:
    """Remove a server from the user's file. Raises ConfigError, also if it is not there."""
    with _edit_entries() as entries:
        found = [key for key in entries if name in (key, module_name(key))]
        if not found:
            there = ", ".join(entries) or "none"
            raise ConfigError(f"{user_file()} names no server {name!r}; there are: {there}")
        for key in found:
            del entries[key]


@contextmanager
def _edit_entries() -> Generator[dict[str, Json]]:
    """Yield the entries, then write them back with the rest of the file. Raises ConfigError."""
    path = user_file()
    with hold_file_lock(path):
        data = read_private(path)
        try:
            table: object = {} if data is None else json.loads(data)
        except ValueError as error:
            raise ConfigError(f"{path} is not JSON: {error}; fix it first") from error
        content: dict[str, Json] = cast("dict[str, Json]", table) if isinstance(table, dict) else {_KEY: None}
        entries = content.setdefault(_KEY, {})
        if not isinstance(entries, dict):
            raise ConfigError(f'{path} should be {{"{_KEY}": {{NAME: ...}}}}; fix it first')
        yield cast("dict[str, Json]", entries)
        write_private(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def build_entry(
    *,
    what: tuple[str, ...],
    env: tuple[str, ...] = (),
    headers: tuple[str, ...] = (),
    transport: str | None = None,
    reach: str | None = None,
    hosts: tuple[str, ...] = (),
) -> dict[str, Json]:
    """Build an entry from typed options. `what`: a URL, or a command and its arguments. Raises ConfigError."""
    first, *args = what
    is_url = first.startswith(("http://", "https://"))
    if is_url and args:
        raise ConfigError(f"{args[0]!r} does not go with a URL; leave it out")
    if transport and (transport == "stdio") == is_url:
        kind = "a URL" if is_url else "a command"
        raise ConfigError(f"{first!r} is {kind}, which does not go with --transport {transport}")
    if is_url and (env or reach or hosts):
        raise ConfigError("--env, --reach and --host are for servers that are started here, not for a URL")
    if not is_url and headers:
        raise ConfigError("--header is for a URL; a command gets --env")
    if reach == "network" and not hosts:
        raise ConfigError("--reach network needs --host HOST for each host that it may reach")
    entry: dict[str, Json] = {"url": first} if is_url else {"command": first, "args": args}
    if is_url and transport:
        entry["type"] = transport
    if env:
        entry["env"] = _pairs("--env", env)
    if headers:
        entry["headers"] = _pairs("--header", headers, also=":")
    if reach or hosts:
        entry["reach"] = reach or "network"
    if hosts:
        entry["hosts"] = list(hosts)
    return entry


def _pairs(option: str, given: Iterable[str], also: str = "=") -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        # Headers are written with a colon everywhere else.
        at = min((place for sign in ("=", also) if (place := one.find(sign)) > 0), default=0)
        if not at:
            raise ConfigError(f"{option} {one!r} is wrong: write NAME=VALUE")
        found[one[:at].strip()] = one[at + 1 :].strip()
    return found
