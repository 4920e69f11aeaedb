"""The tools of the held-out set: eight servers of the public one, and six of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pinfold.app.bench.held_out.servers.clock import Clock
from pinfold.app.bench.held_out.servers.crm import Crm
from pinfold.app.bench.held_out.servers.git import Git
from pinfold.app.bench.held_out.servers.monitor import Monitor
from pinfold.app.bench.held_out.servers.warehouse import Warehouse
from pinfold.app.bench.held_out.servers.wiki import Wiki
from pinfold.app.bench.servers import ALWAYS, SERVERS
from pinfold.app.bench.servers.offering import tools_in
from pinfold.tools import Tool

_KEPT = ("bank", "calendar", "drive", "issues", "messages", "shop", "support", "travel")
_SERVERS: dict[str, Callable[[], object]] = {
    **{name: SERVERS[name] for name in _KEPT},
    "clock": Clock,
    "crm": Crm,
    "git": Git,
    "monitor": Monitor,
    "warehouse": Warehouse,
    "wiki": Wiki,
}
_ALWAYS = {
    **ALWAYS,
    "clock": "",
    "crm": "Amounts are in euro. Works with the rights of the user who is signed in.",
    "git": "Works on the repository of the current project.",
    "monitor": "Times are given in seconds since 1970. Needs the role of a viewer, changes that of an editor.",
    "warehouse": "The database is read-only.",
    "wiki": "Only pages that the user who is signed in may see or change.",
}
DECLARED = sorted(_SERVERS)[5::6]
"""Every sixth server says what its results look like, as a sixth of the tools of real servers do."""
_TEXT = {"type": "string"}


def new_tools() -> list[Tool[..., Any]]:
    """All of them, over servers nobody has touched."""
    return [
        replace(tool, returns=_returns(tool))
        for name, server in sorted(_SERVERS.items())
        for tool in tools_in(name, server(), _ALWAYS[name])
    ]


def _returns(tool: Tool[..., Any]) -> Any:
    if tool.server not in DECLARED:
        return None
    return _TEXT if tool.server == "git" else tool.returns
