"""What is said of a live session beside its events: plain data for front ends, and what became of the variables of a resumed one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal, TypeAlias, assert_never

from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.engine import State
from pinfold.events import FLOW, ActionFinished, ActionId, ActionStarted, Entry, Json
from pinfold.sandbox import SandboxUnavailable
from pinfold.text import first_line, join_numbers

Sight: TypeAlias = Literal["variables", "tools", "servers", "grants"]
_WORDS = 120


async def query_session(hands: SandboxActionRunner, state: State, what: Sight) -> Json:
    """Raises SandboxUnavailable, ConfigError."""
    match what:
        case "variables":
            there = await (await hands.ensure_session()).variables()
            return [{name: getattr(one, name) for name in ("name", "type", "shape", "size", "cell")} for one in there]
        case "tools":
            tools = [(server, tool) for server, tools in hands.registry.servers.items() for tool in tools]
            words = [first_line(tool.schema.description, _WORDS) for _, tool in tools]
            return [
                {"name": tool.name, "server": server, "effect": tool.effect, "words": text}
                for (server, tool), text in zip(tools, words, strict=True)
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


async def report_restored(hands: SandboxActionRunner, state: State, entries: Iterable[Entry]) -> dict[str, Any]:
    """The fields of SessionOpened that say what became of the variables."""
    if not state.cells:
        return {}
    try:
        back = await hands.restore_variables()
    except SandboxUnavailable as error:
        return {"lost": (f"all Python variables ({error})",)}
    if back is None:
        return {"lost": ("all Python variables",)}
    lost = [f"{it.name} ({it.reason})" for it in back.labels if it.status == "lost"]
    if back.missing:
        names = ", ".join(sorted(_find_changed_names(entries, {*back.missing})))
        lost.append(f"what {join_numbers('cell', back.missing)} did to variables{f' ({names})' if names else ''}")
    # Names that begin with `_` are not listed among variables, and a loss is said of any.
    listed = [it for it in back.labels if not it.name.startswith("_")]
    return {
        "restored": tuple(it.name for it in listed if it.status == "restored"),
        "replayed": tuple(it.name for it in listed if it.status == "replayed"),
        "lost": tuple(lost),
    }


def _find_changed_names(entries: Iterable[Entry], cells: Collection[int]) -> set[str]:
    """Names that these cells have added or changed, as far as was seen."""
    ids: set[ActionId] = set()
    names: set[str] = set()
    for event in (entry.event for entry in entries):
        if isinstance(event, ActionStarted) and event.cell in cells:
            ids.add(event.id)
        elif isinstance(event, ActionFinished) and event.id in ids and event.variables:
            names |= {*event.variables.added, *event.variables.changed}
    return names
