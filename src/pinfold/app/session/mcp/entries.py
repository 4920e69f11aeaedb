"""From what the user typed to an entry of `mcpServers`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pinfold.app.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOptions:
    what: tuple[str, ...]
    """A URL, or a command and its arguments."""
    env: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    transport: str | None = None
    reach: str | None = None
    hosts: tuple[str, ...] = ()


def build_entry(given: EntryOptions) -> dict[str, Any]:
    """Raises ConfigError."""
    first, *args = given.what
    is_url = first.startswith(("http://", "https://"))
    if is_url and args:
        raise ConfigError(f"{args[0]!r} does not go with a URL; leave it out")
    transport = given.transport
    if transport and (transport == "stdio") == is_url:
        kind = "a URL" if is_url else "a command"
        raise ConfigError(f"{first!r} is {kind}, which does not go with --transport {transport}")
    if is_url and (given.env or given.reach or given.hosts):
        raise ConfigError("--env, --reach and --host are for servers that are started here, not for a URL")
    if not is_url and given.headers:
        raise ConfigError("--header is for a URL; a command gets --env")
    if given.reach == "network" and not given.hosts:
        raise ConfigError("--reach network needs --host HOST, what it may reach")
    entry: dict[str, Any] = {"url": first} if is_url else {"command": first, "args": args}
    if is_url and transport:
        entry["type"] = transport
    if given.env:
        entry["env"] = _pairs("--env", given.env)
    if given.headers:
        entry["headers"] = _pairs("--header", given.headers, also=":")
    if given.reach or given.hosts:
        entry["reach"] = given.reach or "network"
    if given.hosts:
        entry["hosts"] = list(given.hosts)
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
