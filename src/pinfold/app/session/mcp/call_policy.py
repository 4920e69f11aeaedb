"""What policy must know of a call of an MCP tool, and which calls are held back whatever it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pinfold.events import Action, Ask, CallTool, Deny, Verdict
from pinfold.policy import Facts
from pinfold.tools import Registry, Tool

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers

SHOWN = 16_000
"""Characters of a difference that can be agreed to in passing: all of it must fit before the user's eyes."""
_RULE = "changed since you agreed"


def server_facts(action: CallTool, tool: Tool[..., Any] | None, servers: SessionServers) -> Facts | None:
    """None for what is no server's."""
    if servers.is_sampling(action):
        return Facts(effect="once", reach="outside")
    if tool is None or tool.server not in servers.names:
        return None
    target = f"server {servers.identity(tool.server)}"
    return Facts(effect=tool.effect, reach="outside", target=target, leaves=servers.leaves(tool))


def ask_if_changed(action: Action, verdict: Verdict, registry: Registry, servers: SessionServers | None) -> Verdict:
    """A tool that is not what the user agreed to is asked about each time, in every mode; no grant covers it."""
    tool = registry.get(action.tool) if isinstance(action, CallTool) else None
    if servers is None or tool is None or not tool.held or isinstance(verdict, Deny):
        return verdict
    server = tool.server
    if len(servers.difference(server).text) > SHOWN:
        return Deny(
            f"{server} has changed too much to be shown in passing; look at it: pinfold mcp trust {server}", rule=_RULE
        )
    return Ask(
        reason=f"{server} describes {tool.name} otherwise than when you agreed to it; "
        f"a yes agrees to all that has changed in {server}",
        rule=_RULE,
    )
