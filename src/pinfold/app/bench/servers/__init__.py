"""The tools of the bench: twelve servers in memory, the same at every start, as verbose as servers of MCP are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from msgspec.structs import replace

from pinfold.app.bench.servers.bank import Bank
from pinfold.app.bench.servers.calendar import Calendar
from pinfold.app.bench.servers.drive import Drive
from pinfold.app.bench.servers.issues import Issues
from pinfold.app.bench.servers.maths import Maths
from pinfold.app.bench.servers.messages import Messages
from pinfold.app.bench.servers.offering import tools_in
from pinfold.app.bench.servers.posts import Posts
from pinfold.app.bench.servers.shop import Shop
from pinfold.app.bench.servers.support import Support
from pinfold.app.bench.servers.trading import Trading
from pinfold.app.bench.servers.travel import Travel
from pinfold.app.bench.servers.vehicle import Vehicle
from pinfold.tools import Tool

__all__ = ["ALWAYS", "SERVERS", "more_tools", "new_tools"]

SERVERS: dict[str, Callable[[], object]] = {
    "drive": Drive,
    "issues": Issues,
    "calendar": Calendar,
    "shop": Shop,
    "travel": Travel,
    "vehicle": Vehicle,
    "messages": Messages,
    "trading": Trading,
    "maths": Maths,
    "support": Support,
    "bank": Bank,
    "posts": Posts,
}


ALWAYS = {
    "drive": "Only works within the folders that you have been given access to; other paths are refused.",
    "issues": "Needs access to the repository; private ones must have been shared with you first.",
    "calendar": "Times are those of the calendar's own time zone unless said otherwise.",
    "shop": "Amounts are in euro, taxes included. Needs the role of a clerk in the shop.",
    "travel": "Prices are in euro and may change until the booking has been confirmed.",
    "vehicle": "The car must be paired with this account and within reach of the network.",
    "messages": "Works on behalf of the user who is signed in to the workspace.",
    "trading": "Amounts are in dollars; markets are open on working days from 9:30 to 16:00.",
    "maths": "Numbers are handled in double precision; results are not rounded.",
    "support": "Needs the role of an agent of the support desk.",
    "bank": "Amounts are in the currency of the account, whose limits apply.",
    "posts": "Works on behalf of the account that is signed in; limits on the number of requests apply.",
}
"""With these words ends the description of each tool of a server: real ones repeat such things in every tool."""


def new_tools() -> list[Tool[..., Any]]:
    """All of them, over servers nobody has touched."""
    return [tool for name, server in SERVERS.items() for tool in tools_in(name, server(), ALWAYS[name])]


def more_tools(number: int) -> list[Tool[..., Any]]:
    """So many tools: those there are, then the same again under other servers' names."""
    return [tool for tool, _ in zip(_endless(), range(number), strict=False)]


def _endless() -> Iterator[Tool[..., Any]]:
    for place in count(1):
        for tool in new_tools():
            server = tool.server if place == 1 else f"{tool.server}_{place}"
            yield replace(tool, name=f"{server}.{tool.name.rpartition('.')[2]}", server=server)
