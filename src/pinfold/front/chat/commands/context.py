"""What a command may use of the chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pinfold.app import Link
from pinfold.app.session import Mount
from pinfold.events import SessionId
from pinfold.front.chat.dialogs import UserInteraction


class Transcript(Protocol):
    @property
    def width(self) -> int: ...

    @property
    def steered(self) -> bool:
        """The terminal understands escape sequences."""
        ...

    def write(self, *things: Any) -> None:
        """Append to the scrollback: what rich can render, or plain text as it is."""
        ...

    def raw(self, data: str, rows: int) -> None:
        """Send the terminal an escape sequence that takes `rows` rows."""
        ...


class EventRenderer(Protocol):
    thinking: bool
    """True if the model's reasoning is shown whole."""

    def last_thought(self) -> str: ...


class ChatContext(UserInteraction, Protocol):
    @property
    def link(self) -> Link: ...

    @property
    def transcript(self) -> Transcript: ...

    @property
    def renderer(self) -> EventRenderer: ...

    @property
    def session(self) -> SessionId: ...

    @property
    def workspace(self) -> Path: ...

    async def say(self, text: str) -> None:
        """Run a turn with what the user said."""
        ...

    async def ask(self, question: str, keys: Mapping[str, str]) -> str:
        """The key that was pressed; "" for Esc."""
        ...

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        """One of the values, each shown with its words; None for Esc."""
        ...

    async def reopen(self, *, data: Mapping[str, Path] | None = None, mounts: Sequence[Mount] | None = None) -> None:
        """Reopen this session with other data or mounts. Raises PinfoldError."""
        ...

    async def switch(self, session: SessionId | None) -> None:
        """Change to another session; None is a new one."""
        ...

    def leave(self) -> None: ...
