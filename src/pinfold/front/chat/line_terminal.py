"""The chat on a terminal without escape sequences: no live region, no colours, no keys."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.front.chat.input_queue import LEAVE_HINT, ChoiceQuestion, InputQueue, KeyQuestion, Question

if TYPE_CHECKING:
    from pinfold.front.flags import Flags


class LineTerminal:
    """The conversation's `Terminal`, reading and writing whole lines."""

    steered = False

    def __init__(self, input_queue: InputQueue) -> None:
        self._input_queue = input_queue
        self._in = sys.stdin.fileno()
        self._read = b""
        self._begun = ""
        """Lines of an unfinished entry, each of which ended with a backslash."""
        self._prompted = False
        self._echoed = ""
        """The entered line, which the terminal has already echoed."""
        self._soon: asyncio.Handle | None = None
        input_queue.changed, input_queue.arms = self._prompt_soon, self._ask

    @property
    def columns(self) -> int:
        return max(20, shutil.get_terminal_size().columns)

    @property
    def rows(self) -> int:
        return shutil.get_terminal_size().lines

    def append(self, text: str) -> None:
        if self._echoed:
            if text == "\n":
                return
            echoed, self._echoed = self._echoed, ""
            if text == f"{echoed}\n":
                return
        if self._prompted:  # the cursor is right after the prompt
            text = f"\n{text}"
            self._prompted = False
        _write(text)
        self._prompt_soon()

    def set_live_lines(self, lines: list[str]) -> None:
        """Not supported."""

    def set_completions(
        self, commands: Iterable[tuple[str, str]], arguments: Callable[[str, str], Iterable[str]], workspace: Path
    ) -> None:
        """Not supported."""

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._in, self._take)
        loop.add_signal_handler(signal.SIGINT, self._stop)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._input_queue.leave)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._in)

    def _prompt_soon(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._prompt)

    def _prompt(self) -> None:
        self._soon = None
        input_queue = self._input_queue
        input_queue.on_drawn()
        if not (
            self._prompted or input_queue.is_busy or input_queue.queued or input_queue.question or input_queue.leaving
        ):
            self._prompted = True
            _write(". " if self._begun else "> ")

    def _take(self) -> None:
        try:
            data = os.read(self._in, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self._input_queue.leave()
            return
        *lines, self._read = (self._read + data).split(b"\n")
        for line in lines:
            self._enter(line.decode("utf-8", "replace"))

    def _enter(self, line: str) -> None:
        self._prompted = False
        self._input_queue.hint = ""
        question = self._input_queue.question
        if question is not None and self._input_queue.armed:
            _answer(question, line.strip())
        elif line.endswith("\\"):
            self._begun += line[:-1] + "\n"
        else:
            self._echoed = "" if self._begun or self._input_queue.is_busy else f"> {line.rstrip()}"
            self._input_queue.enter(self._begun + line)
            self._begun = ""
        self._prompt_soon()

    def _ask(self) -> None:
        question = self._input_queue.question
        if question is None:
            return
        lines = [question.title]
        if isinstance(question, KeyQuestion):
            lines.append("  ".join(f"[{key}] {words}" for key, words in question.keys.items() if len(key) == 1))
        elif isinstance(question, ChoiceQuestion):
            lines += [f"  {number}. {words}" for number, words in enumerate(question.options, 1)]
            lines.append("type a number, then Enter; Ctrl-C cancels")
        _write("\n".join(lines) + "\n")
        termios.tcflush(self._in, termios.TCIFLUSH)  # ignore what was typed before the question
        _write(f"{question.label} ")

    def _stop(self) -> None:
        input_queue = self._input_queue
        if input_queue.question is not None:
            _write("\n")
            input_queue.question.settle(None)
        elif input_queue.is_busy:
            input_queue.interrupted()
        elif input_queue.hint == LEAVE_HINT:
            input_queue.leave()
        else:
            input_queue.hint = LEAVE_HINT
            self.append(f"{LEAVE_HINT}\n")


def _answer(question: Question, line: str) -> None:
    if not isinstance(question, KeyQuestion):
        if line or not isinstance(question, ChoiceQuestion):
            question.enter(line)
    elif len(line) == 1 or line.lower() in ("yes", "no"):
        question.press(line[0])
    elif line:
        keys = ", ".join(key for key in question.keys if len(key) == 1)
        _write(f"Type one of {keys}, then Enter.\n? ")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def chat_in_lines(given: Flags) -> int:
    """Run the chat and return the exit code."""
    from pinfold.front.chat.conversation import converse

    input_queue = InputQueue(time.monotonic)
    lines = LineTerminal(input_queue)
    lines.open()
    try:
        return await converse(input_queue, lines, given)
    finally:
        lines.close()
