"""What a command may use of the chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pinfold.app import Link
from pinfold.app.session.options import Mount
from pinfold.events import SessionId
from pinfold.front.chat.downloads import UserInteraction


class Transcript(Protocol):
    @property
    def width(self) -> int: ...

    @property
    def colour(self) -> bool: ...

    @property
    def steered(self) -> bool:
        """The terminal understands escape sequences."""
        ...

    def write(self, *things: Any) -> None:
        """Append to the scrollback, for good: what rich can render, or plain text as it is."""
        ...

    def raw(self, data: str, rows: int) -> None:
        """Give the terminal an escape sequence that takes `rows` rows."""
        ...


class EventRenderer(Protocol):
    @property
    def thinking(self) -> bool:
        """Whether the model's reasoning is shown whole."""
        ...

    @thinking.setter
    def thinking(self, shown: bool) -> None: ...

    def last_thought(self) -> str: ...


class ChatContext(UserInteraction, Protocol):
    @property
    def link(self) -> Link: ...

    @property
    def paper(self) -> Transcript: ...

    @property
    def teller(self) -> EventRenderer: ...

    @property
    def session(self) -> SessionId: ...

    @property
    def workspace(self) -> Path: ...

    async def say(self, text: str) -> None:
        """A turn of the user's."""
        ...

    async def ask(self, question: str, keys: Mapping[str, str]) -> str:
        """One key; empty for Esc."""
        ...

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        """One of the values, each with its words; None for Esc."""
        ...

    async def reopen(self, *, data: Mapping[str, Path] | None = None, mounts: Sequence[Mount] | None = None) -> None:
        """Go on with this session, which then sees these. Raises PinfoldError."""
        ...

    async def switch(self, session: SessionId | None) -> None:
        """Go on with another session; None is a new one."""
        ...

    def leave(self) -> None: ...
