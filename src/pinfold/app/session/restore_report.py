"""What became of the variables of a session that goes on in another process, in the words of its log."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.engine import State
from pinfold.events import ActionFinished, ActionId, ActionStarted, Entry
from pinfold.sandbox import SandboxUnavailable
from pinfold.text import join_numbers


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
