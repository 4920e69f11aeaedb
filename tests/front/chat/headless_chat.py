"""A chat without a terminal: a real session, transcript that can be read, and answers given beforehand."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console

from pinfold.app import Link, LiveSession, Options, SessionStore, acquire, open_session
from pinfold.app.session.options import Mount
from pinfold.events import (
    ActionFinished,
    ActionId,
    Command,
    Entry,
    Event,
    Execute,
    Say,
    SessionId,
    TurnEnded,
    Usage,
    new_session_id,
    new_turn_id,
)
from pinfold.front.chat.commands.context import ChatContext
from pinfold.front.chat.commands.table import run_command
from pinfold.model import KeptReply, ScriptedModel
from pinfold.model.scripted import KeptCall


def cell(code: str) -> KeptReply:
    return calling("python", code=code)


def calling(tool: str, **args: Any) -> KeptReply:
    usage = Usage(input_tokens=1200, output_tokens=34)
    return KeptReply(calls=(KeptCall(tool=tool, args=args),), usage=usage)


def saying(text: str) -> KeptReply:
    return KeptReply(text=text)


class Page:
    def __init__(self) -> None:
        self.width = 80
        self.colour = False
        self.steered = True
        self.sequences: list[str] = []
        self._written = io.StringIO()

    def write(self, *things: Any) -> None:
        console = Console(
            file=self._written, width=self.width, markup=False, highlight=False, emoji=False, color_system=None
        )
        for thing in things:
            console.print(thing)

    def raw(self, data: str, rows: int) -> None:
        assert rows == 0
        self.sequences.append(data)

    def live(self, thing: Any) -> None:
        """There is no live region."""

    def read(self) -> str:
        """All that was written since it was last read."""
        text = self._written.getvalue()
        self._written.seek(0)
        self._written.truncate()
        return text


class Telling:
    thinking = False

    def last_thought(self) -> str:
        return "It must be a prime."


class Talking(ChatContext):
    """As the chat is to its commands."""

    def __init__(self, link: Link, workspace: Path) -> None:
        self.link = link
        self.session = link.session
        self.workspace = workspace
        self.transcript: Any = Page()
        self.renderer = Telling()
        self.answers: list[str | None] = []
        """What is said to the next questions."""
        self.asked: list[str] = []
        self.said: list[str] = []
        self.went: list[SessionId | None] = []
        self.left = False
        self.reopened: list[tuple[Mapping[str, Path] | None, Sequence[Mount] | None]] = []

    async def say(self, text: str) -> None:
        self.said.append(text)

    async def ask(self, question: str, keys: Mapping[str, str]) -> str:
        self.asked.append(question)
        answer = self.answers.pop(0) or ""
        assert answer in ("", *keys)
        return answer

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        self.asked.append("\n".join((title, *(words for _, words in options))))
        answer = self.answers.pop(0)
        assert answer in (None, *(value for value, _ in options))
        return answer

    async def ask_secret(self, title: str, label: str, command: str) -> str:  # noqa: ARG002
        self.asked.append(f"{title}\n{label}")
        return self.answers.pop(0) or ""

    async def reopen(self, *, data: Mapping[str, Path] | None = None, mounts: Sequence[Mount] | None = None) -> None:
        self.reopened.append((data, mounts))

    async def switch(self, session: SessionId | None) -> None:
        self.went.append(session)

    def leave(self) -> None:
        self.left = True

    def tell(self, *lines: str) -> None:
        for line in lines:
            self.transcript.write(line)

    def progress(self, words: str) -> None:
        """There is no line for it."""

    async def confirm(self, question: str) -> bool:
        return await self.ask(question, {"y": "yes", "n": "no"}) == "y"

    @asynccontextmanager
    async def let_user_cancel(self) -> AsyncGenerator[None]:
        yield

    async def type(self, line: str, *answers: str | None) -> str:
        """What a line leads to, as it is read on the transcript."""
        self.answers = list(answers)
        await run_command(self, line)
        assert not self.answers
        return self.transcript.read()

    async def turn(self, text: str) -> None:
        """Say something and wait for the end."""
        say = Say(turn=new_turn_id(), text=text)
        await self._until(say, TurnEnded, say.turn)

    async def run(self, id_: str, code: str) -> None:
        """A cell of the user's own."""
        execute = Execute(id=ActionId(id_), code=code)
        await self._until(execute, ActionFinished, id_)

    async def _until(self, command: Command, kind: type[TurnEnded | ActionFinished], id_: str) -> None:
        async with self.link.subscribe(0) as feed:
            await self.link.submit(command)
            with anyio.fail_after(60):
                async for item in feed:
                    event = item.event if isinstance(item, Entry) else None
                    if isinstance(event, kind) and id_ == (event.turn if isinstance(event, TurnEnded) else event.id):
                        return


def events_of(live: LiveSession, kind: type[Event]) -> list[Any]:
    return [entry.event for entry in live.log.read() if isinstance(entry.event, kind)]


@asynccontextmanager
async def talking(
    workspace: Path, *replies: KeptReply, kept: bool = True, **options: Any
) -> AsyncGenerator[tuple[Talking, LiveSession]]:
    session = new_session_id()
    given = Options(workspace=workspace, model=ScriptedModel(replies), sandbox="namespaces", **options)
    opening = acquire(SessionStore().folder_of(session), session, given) if kept else open_session(None, session, given)
    async with opening as live:
        yield Talking(live, workspace), live
