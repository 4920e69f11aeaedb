"""Plays a task through the product itself: engine, prompt, catalogue, policy and the real sandbox; only the model is scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pinfold.app.bench.shim import put_servers
from pinfold.app.bench.task import Seen, Task
from pinfold.app.bench.weighing import Weight, weigh, weigh_reply
from pinfold.app.live import LiveSession, Options, own
from pinfold.app.toolbox import ToolOptions
from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    CallTool,
    Entry,
    Reply,
    Request,
    Say,
    TurnEnded,
    TurnFailed,
    TurnInterrupted,
    new_session_id,
    new_turn_id,
)
from pinfold.model import KeptCall, KeptReply, ScriptedModel
from pinfold.tools import Tool


class Overheard:
    """A model, and what it was told and said."""

    def __init__(self, model: ScriptedModel) -> None:
        self.name = model.name
        self.exchanges: list[tuple[Request, int]] = []
        self._model = model

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        async for piece in self._model.stream(request):
            if isinstance(piece, Reply):
                self.exchanges.append((request, weigh_reply(piece)))
            yield piece


@dataclass(kw_only=True)
class Played:
    weight: Weight = field(default_factory=Weight)
    calls: list[list[CallTool]] = field(default_factory=list[list[CallTool]])
    """Of tools, by code, turn by turn."""
    seen: list[str] = field(default_factory=list[str])
    """What the model saw of the last cell of each turn."""
    problems: list[str] = field(default_factory=list[str])
    exchanges: list[tuple[Request, int]] = field(default_factory=list[tuple[Request, int]])


def script(task: Task, facts: Sequence[Seen]) -> list[KeptReply]:
    lines: list[KeptReply] = []
    for turn, known in zip(task.turns, facts, strict=True):
        lines += [KeptReply(calls=(KeptCall(tool="python", args={"code": cell}),)) for cell in turn.cells]
        lines.append(KeptReply(text=turn.says.format(*known)))
    return lines


async def play(task: Task, tools: Sequence[Tool[..., Any]], facts: Sequence[Seen]) -> Played:
    """What it cost, and what of it was not as it should be."""
    model = Overheard(ScriptedModel(script(task, facts)))
    played = Played(exchanges=model.exchanges)
    with TemporaryDirectory(prefix="pinfold-bench-") as folder:
        workspace = Path(folder)
        for name, make in task.files.items():
            (workspace / name).write_text(make(), encoding="utf-8")
        put_servers(workspace, tools)
        options = Options(
            workspace=workspace, model=model, mode="full", toolbox=ToolOptions(served=tuple(tools))
        )
        async with own(None, new_session_id(), options) as live:
            for turn, known in zip(task.turns, facts, strict=True):
                await _take(live, turn.asks, len(turn.cells), played)
                missing = [fact for fact in known if fact not in played.seen[-1]]
                if missing:
                    played.problems.append(f"{missing[0]!r} is not in what was seen: {played.seen[-1]!r}")
    played.weight = weigh(model.exchanges)
    return played


async def _take(live: LiveSession, asks: str, cells: int, played: Played) -> None:
    turn = new_turn_id()
    calls: list[CallTool] = []
    proposed: set[ActionId] = set()
    seen: list[str] = []
    async with live.subscribe(live.log.seq) as feed:
        await live.submit(Say(turn=turn, text=asks))
        async for item in feed:
            match item.event if isinstance(item, Entry) else item:
                case ActionProposed(parent=str(), action=CallTool() as call):
                    calls.append(call)
                case ActionProposed(id=id_, parent=None):
                    proposed.add(id_)
                case ActionFinished(id=id_, observation=text) if id_ in proposed:
                    seen.append(text)
                case TurnEnded():
                    break
                case TurnFailed(error=why) | TurnInterrupted(reason=why):
                    played.problems.append(why)
                    break
                case _:
                    pass
    if len(seen) != cells:
        played.problems.append(f"{len(seen)} cells instead of {cells}")
    played.calls.append(calls)
    played.seen.append(seen[-1] if seen else "")
