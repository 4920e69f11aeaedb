"""What the model is told: a projection of the state, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from pinfold.engine.state import State
from pinfold.events import Json, Request, ToolSchema


def request_of(state: State, tools: tuple[ToolSchema, ...], settings: Mapping[str, Json]) -> Request:
    return Request(
        system=state.opened.prompt if state.opened else "",
        messages=tuple(chain.from_iterable(turn.messages for turn in state.turns)),
        tools=tools,
        settings=settings,
    )
