"""Plays a task through the product itself: engine, prompt, catalogue, policy and the real sandbox; only the model is scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.tokens.script import Move, calls_in, names_in
from bench.tokens.task import Task
from bench.tokens.weight import Weight, pieces, weigh, weigh_reply

from pinfold.app.session.live_session import LiveSession, open_session
from pinfold.app.session.options import Options
from pinfold.app.session.toolbox import ToolOptions
from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    CallTool,
    Entry,
    Reply,
    Request,
    Say,
    Thought,
    TurnEnded,
    TurnFailed,
    TurnInterrupted,
    new_session_id,
    new_turn_id,
)
from pinfold.model import ScriptedModel
from pinfold.tools import Tool


class RecordingModel:
    """Keeps what a model was sent and what it replied."""

    def __init__(self, model: ScriptedModel) -> None:
        self.name = model.name
        self.exchanges: list[tuple[Request, Reply]] = []
        self._model = model

    async def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        async for piece in self._model.stream(request):
            if isinstance(piece, Reply):
                self.exchanges.append((request, piece))
            yield piece


@dataclass(kw_only=True)
class Conversation:
    weight: Weight = field(default_factory=Weight)
    calls: list[list[CallTool]] = field(default_factory=list[list[CallTool]])
    """Of tools, by code, turn by turn."""
    seen: list[str] = field(default_factory=list[str])
    """What the model saw of the last cell of each turn."""
    problems: list[str] = field(default_factory=list[str])
    exchanges: list[tuple[Request, Reply]] = field(default_factory=list[tuple[Request, Reply]])


async def play(
    task: Task, moves: Sequence[Move], tools: Sequence[Tool[..., Any]], *, data: dict[str, Path] | None = None
) -> Conversation:
    model = RecordingModel(ScriptedModel([reply for move in moves for reply in move.replies()]))
    played = Conversation(exchanges=model.exchanges)
    with TemporaryDirectory(prefix="pinfold-bench-") as folder:
        workspace = Path(folder)
        for name, file in task.files.items():
            (workspace / name).write_text(file.text, encoding="utf-8")
        options = Options(
            workspace=workspace, model=model, mode="full", data=data, toolbox=ToolOptions(served=tuple(tools))
        )
        async with open_session(None, new_session_id(), options) as live:
            for turn, move in zip(task.turns, moves, strict=True):
                await _play_turn(live, turn.asks, move, played)
    played.problems += _unannounced_tools(model.exchanges)
    played.weight = weigh((request, weigh_reply(reply)) for request, reply in model.exchanges)
    return played


async def _play_turn(live: LiveSession, asks: str, move: Move, played: Conversation) -> None:
    turn = new_turn_id()
    calls: list[CallTool] = []
    proposed: set[ActionId] = set()
    seen: list[str] = []
    async with live.subscribe(live.log.seq) as feed:
        await live.submit(Say(turn=turn, text=asks))
        async for item in feed:
            match item.event if isinstance(item, Entry) else item:
                case ActionProposed(parent=str(), action=CallTool(tool=name) as call):
                    if "." in name:
                        calls.append(call)
                case ActionProposed(id=id_, parent=None):
                    proposed.add(id_)
                case ActionFinished(id=id_, observation=text) if id_ in proposed:
                    seen.append(text)
                case TurnEnded(text=text):
                    if text != move.says:
                        played.problems.append(f"the answer is {text!r} instead of {move.says!r}")
                    break
                case TurnFailed(error=why) | TurnInterrupted(reason=why):
                    played.problems.append(why)
                    break
                case _:
                    pass
    missing = [] if move.answers else [fact for fact in move.facts if fact not in "".join(seen)]
    if missing:
        played.problems.append(f"{missing[0]!r} was not seen")
    if len(seen) != len(move.cells):
        played.problems.append(f"{len(seen)} cells instead of {len(move.cells)}: {seen[-1:]}")
    played.calls.append(calls)
    played.seen.append(seen[-1] if seen else "")


def _unannounced_tools(exchanges: Sequence[tuple[Request, Reply]]) -> list[str]:
    """Tools that code used before the model was told of them."""
    found: set[str] = set()
    for request, reply in exchanges:
        told = names_in("\n".join(pieces(request)))
        for call in reply.calls:
            found |= calls_in(call.args.get("code", "")) - told
    return [f"{name} was used without having been told of" for name in sorted(found)]
