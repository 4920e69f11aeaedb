"""What a front end may see of a live session beside its events: plain data, so that it goes through a socket too."""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never

from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.engine import State
from pinfold.events import FLOW, Json
from pinfold.text import first_line

Sight: TypeAlias = Literal["variables", "tools", "servers", "grants"]
_WORDS = 120


async def query_session(hands: SandboxActionRunner, state: State, what: Sight) -> Json:
    """Raises SandboxUnavailable, ConfigError."""
    match what:
        case "variables":
            return [
                {"name": one.name, "type": one.type, "shape": one.shape, "size": one.size, "cell": one.cell}
                for one in await (await hands.ensure_session()).variables()
            ]
        case "tools":
            return [
                {
                    "name": tool.name,
                    "server": server,
                    "effect": tool.effect,
                    "words": first_line(tool.schema.description, _WORDS),
                }
                for server, tools in hands.registry.servers.items()
                for tool in tools
            ]
        case "servers":
            return hands.servers.list_status() if hands.servers else []
        case "grants":
            always = hands.judging.grants.of(hands.spec.workspace) if hands.judging.grants else ()
            typed = hands.judging.flows
            return [
                *({"pattern": pattern, "scope": "session"} for pattern in sorted(state.granted)),
                *({"pattern": pattern, "scope": "always"} for pattern in sorted(always)),
                *({"pattern": f"{FLOW}{to}", "scope": "this run"} for to in (*typed.hosts, *typed.tools)),
            ]
        case _:
            assert_never(what)
