"""The tools of the benchmark: eighteen servers in memory, the same at every start, as verbose as real MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any

from bench.tokens.servers.bank import Bank
from bench.tokens.servers.calendar import Calendar
from bench.tokens.servers.clock import Clock
from bench.tokens.servers.crm import Crm
from bench.tokens.servers.drive import Drive
from bench.tokens.servers.git import Git
from bench.tokens.servers.issues import Issues
from bench.tokens.servers.maths import Maths
from bench.tokens.servers.messages import Messages
from bench.tokens.servers.monitor import Monitor
from bench.tokens.servers.posts import Posts
from bench.tokens.servers.shop import Shop
from bench.tokens.servers.support import Support
from bench.tokens.servers.tool_schema import make_tools
from bench.tokens.servers.trading import Trading
from bench.tokens.servers.travel import Travel
from bench.tokens.servers.vehicle import Vehicle
from bench.tokens.servers.warehouse import Warehouse
from bench.tokens.servers.wiki import Wiki
from msgspec.structs import replace

from pinfold.tools import Tool

__all__ = ["DECLARED", "HELD_OUT", "PUBLIC", "held_out_tools", "more_tools", "public_tools"]

Server = tuple[Callable[[], object], str]
"""With the words that end the description of each of its tools: real servers repeat such things in every tool."""
PUBLIC: dict[str, Server] = {
    "drive": (Drive, "Only works within the folders that you have been given access to; other paths are refused."),
    "issues": (Issues, "Needs access to the repository; private ones must have been shared with you first."),
    "calendar": (Calendar, "Times are those of the calendar's own time zone unless said otherwise."),
    "shop": (Shop, "Amounts are in euro, taxes included. Needs the role of a clerk in the shop."),
    "travel": (Travel, "Prices are in euro and may change until the booking has been confirmed."),
    "vehicle": (Vehicle, "The car must be paired with this account and within reach of the network."),
    "messages": (Messages, "Works on behalf of the user who is signed in to the workspace."),
    "trading": (Trading, "Amounts are in dollars; markets are open on working days from 9:30 to 16:00."),
    "maths": (Maths, "Numbers are handled in double precision; results are not rounded."),
    "support": (Support, "Needs the role of an agent of the support desk."),
    "bank": (Bank, "Amounts are in the currency of the account, whose limits apply."),
    "posts": (Posts, "Works on behalf of the account that is signed in; limits on the number of requests apply."),
}
_OF_BOTH = ("bank", "calendar", "drive", "issues", "messages", "shop", "support", "travel")
HELD_OUT: dict[str, Server] = {
    **{name: PUBLIC[name] for name in _OF_BOTH},
    "clock": (Clock, ""),
    "crm": (Crm, "Amounts are in euro. Works with the rights of the user who is signed in."),
    "git": (Git, "Works on the repository of the current project."),
    "monitor": (
        Monitor,
        "Times are given in seconds since 1970. Needs the role of a viewer, changes that of an editor.",
    ),
    "warehouse": (Warehouse, "The database is read-only."),
    "wiki": (Wiki, "Only pages that the user who is signed in may see or change."),
}
DECLARED = sorted(HELD_OUT)[5::6]
"""Every sixth server says what its results look like, as a sixth of the tools of real servers do."""


def public_tools() -> list[Tool[..., Any]]:
    """All of them, over new servers."""
    return _tools_of(PUBLIC.items())


def held_out_tools() -> list[Tool[..., Any]]:
    """All of them, over new servers. Most do not declare the shape of their results."""
    return [replace(tool, returns=_returns(tool)) for tool in _tools_of(sorted(HELD_OUT.items()))]


def more_tools(number: int) -> list[Tool[..., Any]]:
    """So many tools: the public ones, then the same again under other servers' names."""
    return list(islice(_endless(), number))


def _tools_of(servers: Iterable[tuple[str, Server]]) -> list[Tool[..., Any]]:
    return [tool for name, (make, closing) in servers for tool in make_tools(name, make, closing)]


def _returns(tool: Tool[..., Any]) -> Any:
    if tool.server not in DECLARED:
        return None
    return {"type": "string"} if tool.server == "git" else tool.returns


def _endless() -> Iterator[Tool[..., Any]]:
    for place in count(1):
        for tool in public_tools():
            server = tool.server if place == 1 else f"{tool.server}_{place}"
            yield replace(tool, name=f"{server}.{tool.name.rpartition('.')[2]}", server=server)
