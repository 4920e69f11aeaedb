"""Tells and asks the user: lines, progress, questions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio

from pinfold.app import ConfigError, background
from pinfold.events import PinfoldError
from pinfold.front.chat.input_queue import ChoiceQuestion, InputQueue, KeyQuestion, WordsQuestion
from pinfold.front.chat.renderers.transcript import TerminalTranscript
from pinfold.text import presentable, presentable_line

YES_NO = {"y": "yes", "n": "no"}


class UserInteraction(Protocol):
    """What choosing and preparing a session needs of the chat."""

    def tell(self, *lines: str) -> None: ...

    def progress(self, words: str) -> None: ...

    async def confirm(self, question: str) -> bool: ...

    async def ask_secret(self, title: str, label: str, command: str) -> str:
        """Hides what is typed; returns "" for Esc. Raises ConfigError, which names `command`, if the terminal cannot hide it."""
        ...

    def let_user_cancel(self) -> AbstractAsyncContextManager[None]:
        """The user may stop the download inside, and leave."""
        ...


class UserLeft(PinfoldError):
    """The user left during a download."""

    exit_code = 130


class UserDialog:
    def __init__(self, input_queue: InputQueue, transcript: TerminalTranscript) -> None:
        self._input_queue = input_queue
        self.transcript = transcript

    def tell(self, *lines: str) -> None:
        self.transcript.write(*lines)

    def progress(self, words: str) -> None:
        self._input_queue.status = lambda _: words
        self._input_queue.changed()

    async def ask(self, question: str, keys: Mapping[str, str]) -> str:
        return await self._input_queue.ask(KeyQuestion(presentable(question), keys)) or ""

    async def confirm(self, question: str) -> bool:
        self.progress("waiting for you")
        return await self.ask(f"{question}?", YES_NO) == "y"

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        if not options:
            return None
        question = ChoiceQuestion(presentable(title), [presentable_line(words) for _, words in options])
        answer = await self._input_queue.ask(question)
        return None if answer is None else options[int(answer)][0]

    async def ask_secret(self, title: str, label: str, command: str) -> str:
        if not self.transcript.steered:
            raise ConfigError(f"this terminal would show the key while you type; use: {command}")
        question = WordsQuestion(presentable(title), label, may_be_empty=False, hidden=True)
        return await self._input_queue.ask(question) or ""

    @asynccontextmanager
    async def let_user_cancel(self) -> AsyncGenerator[None]:
        """One Ctrl-C leaves and cancels what runs inside. Raises UserLeft."""
        input_queue, before = self._input_queue, self._input_queue.interrupted
        input_queue.busy_since, input_queue.interrupted = time.monotonic(), input_queue.leave

        async def watch(scope: anyio.CancelScope) -> None:
            await input_queue.left.wait()
            scope.cancel()

        try:
            async with background() as tasks:
                tasks.start_soon(watch, tasks.cancel_scope)
                yield
        finally:
            input_queue.busy_since, input_queue.interrupted = None, before
        if input_queue.leaving:
            raise UserLeft("stopped; the part that was downloaded is kept")
