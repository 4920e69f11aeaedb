"""What a turn is doing right now, in one line of the terminal that is drawn again and again: for how long, and tokens so far."""

from __future__ import annotations

import sys
import time

import anyio

from pinfold.events import (
    ActionFinished,
    ActionProposed,
    ActionStarted,
    CallTool,
    Delta,
    Entry,
    ModelCalled,
    ModelReplied,
    Usage,
)
from pinfold.front.chat.status import short
from pinfold.text import presentable_line

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_EVERY_S = 0.1
_CLEAR = "\r\x1b[2K"


class Spinner:
    def __init__(self) -> None:
        self._doing, self._since = "starting", time.monotonic()
        self._usage = Usage()
        self._proposed = "running code"
        self._is_drawn = False

    async def spin(self) -> None:
        frame = 0
        while True:
            sys.stderr.write(f"{_CLEAR}{_FRAMES[frame % len(_FRAMES)]} {self.line(time.monotonic())}")
            sys.stderr.flush()
            self._is_drawn = True
            frame += 1
            await anyio.sleep(_EVERY_S)

    def line(self, now: float) -> str:
        tokens = f"{short(self._usage.input_tokens)} in {short(self._usage.output_tokens)} out"
        parts = [self._doing, f"{int(now - self._since)} s", tokens if self._usage.total else ""]
        return presentable_line(" · ".join(filter(None, parts)))

    def clear(self) -> None:
        """Before anything else is written."""
        if self._is_drawn:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_drawn = False

    def take(self, item: Entry | Delta) -> None:
        match item.event if isinstance(item, Entry) else None:
            case ModelCalled():
                self._turn_to("thinking")
            case ModelReplied(usage=usage, from_cache=cached):
                if not cached:
                    self._usage += usage
            case ActionProposed(action=action):
                self._proposed = f"running {action.tool}" if isinstance(action, CallTool) else "running code"
            case ActionStarted():
                self._turn_to(self._proposed)
            case ActionFinished():
                self._turn_to("thinking")
            case _:
                pass

    def _turn_to(self, doing: str) -> None:
        self._doing, self._since = doing, time.monotonic()
