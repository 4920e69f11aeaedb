"""A few tasks done by a real model of this machine, beside the script: it may need more steps, or fail."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.tokens.task import Task

from pinfold.app.models.session_models import CallOptions
from pinfold.app.session.live_session import open_session
from pinfold.app.session.options import Options
from pinfold.events import (
    Entry,
    ModelReplied,
    Say,
    TurnEnded,
    TurnFailed,
    TurnInterrupted,
    Usage,
    new_session_id,
    new_turn_id,
)

_WORDS = re.compile(r"[\w.:/#-]+")
TASKS = (
    "staff of a small firm",
    "errors of a service",
    "prices of houses",
    "bikes for rent",
    "temperatures of a week",
    "sales by region",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult:
    task: str
    turns: int
    right: int
    """Turns whose answer holds all that it should."""
    usage: Usage
    """As the model's own server counts."""
    calls: int


async def run_live(task: Task) -> LiveResult:
    """Raises ModelError where there is no model."""
    usage, calls, right = Usage(), 0, 0
    with TemporaryDirectory(prefix="pinfold-bench-") as folder:
        for name, file in task.files.items():
            (Path(folder) / name).write_text(file.text, encoding="utf-8")
        options = Options(workspace=Path(folder), model="builtin", mode="full", calling=CallOptions(cache=False))
        async with open_session(None, new_session_id(), options) as session:
            for turn in task.turns:
                answer = ""
                async with session.subscribe(session.log.seq) as feed:
                    await session.submit(Say(turn=new_turn_id(), text=turn.asks))
                    async for item in feed:
                        match item.event if isinstance(item, Entry) else item:
                            case ModelReplied(usage=used):
                                usage += used
                                calls += bool(used.total)
                            case TurnEnded(text=answer):
                                break
                            case TurnFailed() | TurnInterrupted():
                                break
                            case _:
                                pass
                right += all(_is_in(fact, answer) for fact in turn.facts)
    return LiveResult(task=task.name, turns=len(task.turns), right=right, usage=usage, calls=calls)


def _is_in(fact: str, answer: str) -> bool:
    """Word by word, however they are put together; a number may be rounded further."""
    plain = answer.replace(",", "")
    return all(_has(plain, word) for word in _WORDS.findall(fact))


def _has(text: str, word: str) -> bool:
    try:
        number = float(word)
    except ValueError:
        return word in text
    return word in text or any(f"{number:.{places}f}" in text for places in range(4))
