"""The chat as slash commands see it."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
from rich.text import Text

from pinfold.app import Link
from pinfold.app.clients import SessionHistory, build_history, entries_of
from pinfold.app.session import Listing, Mount
from pinfold.events import Entry, Json, PinfoldError, SessionId
from pinfold.front.chat.dialogs import UserDialog
from pinfold.text import presentable, presentable_line

_LIMIT_S = 120.0


class BadArguments(PinfoldError):
    """The arguments of a command are wrong; the message says what is right."""

    exit_code = 2


def parse_number(text: str, what: str, *, least: int = 1) -> int:
    """Parse a number that is not less than `least`. Raises BadArguments."""
    try:
        number = int(text)
    except ValueError:
        raise BadArguments(f"{text!r} is not a {what}; give its number") from None
    if number < least:
        raise BadArguments(f"{number} is not a {what}; the first is {least}")
    return number


class ReasoningDisplay(Protocol):
    thinking: bool
    """True if the model's reasoning is shown whole."""

    def last_thought(self) -> str: ...


class ChatContext(UserDialog, ABC):
    link: Link
    session: SessionId
    workspace: Path
    renderer: ReasoningDisplay

    @abstractmethod
    async def say(self, text: str) -> None:
        """Run a turn with `text` as the user's message."""

    @abstractmethod
    async def reopen(self, *, data: Mapping[str, Path] | None = None, mounts: Sequence[Mount] | None = None) -> None:
        """Reopen this session with other data or mounts. Raises PinfoldError."""

    @abstractmethod
    async def switch(self, session: SessionId | None) -> None:
        """Switch to another session, or to a new one if None."""

    @abstractmethod
    def leave(self) -> None:
        """End the chat; the session is kept."""

    # For all commands

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines that are already safe to print."""
        self.transcript.write(Text("\n".join(lines)))

    def write_table(self, lines: Sequence[str]) -> None:
        """Write lines that are already safe to print, the first as a heading."""
        self.transcript.write(Text.assemble((lines[0], "bold"), "\n" * (len(lines) > 1), "\n".join(lines[1:])))

    def write_section(self, title: str, lines: Iterable[str]) -> None:
        self.transcript.write(Text.assemble((title, "bold"), "\n", "\n".join(lines)))

    def write_note(self, text: str) -> None:
        """Write dim text."""
        self.transcript.write(Text(presentable(text), style="dim"))

    def write_error(self, text: str) -> None:
        self.transcript.write(Text(presentable_line(text), style="red"))

    async def load_entries(self) -> list[Entry]:
        """Raises PinfoldError."""
        return await anyio.to_thread.run_sync(entries_of, self.link)

    async def load_history(self) -> SessionHistory:
        """Raises PinfoldError."""
        return build_history(self.session, await self.load_entries())

    async def require_idle(self, what: str) -> SessionHistory:
        """Return the history. Raises BadArguments if a turn is running."""
        history = await self.load_history()
        if history.is_busy:
            raise BadArguments(f"a turn is running; stop it (Esc) or wait, then {what}")
        return history

    async def run_cli_command(self, *args: str, done: str = "") -> None:
        """Run `pinfold ARGS` in a new process and show its output, or `done` if there is none. Raises BadArguments."""
        # `-P`: do not import modules from this folder; a session may have written them.
        command = [sys.executable, "-P", "-m", "pinfold", *args]
        env = {**os.environ, "NO_COLOR": "1", "COLUMNS": str(self.transcript.width)}
        with anyio.move_on_after(_LIMIT_S) as waiting:
            ran = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False, env=env)
            out = ran.stdout.decode("utf-8", "replace").rstrip("\n")
            said = ran.stderr.decode("utf-8", "replace").strip()
            if out:
                self.write_lines(presentable(out).splitlines())
            if ran.returncode and not out:
                last = said.splitlines()[-1] if said else f"it exited with {ran.returncode}"
                raise BadArguments(presentable_line(last.removeprefix("pinfold: ").removeprefix("Error: ")))
            if said or (done and not out):
                self.write_note(said or done)
        if waiting.cancelled_caught:
            raise BadArguments(f"it took more than {_LIMIT_S:.0f} s and was stopped")

    async def write_file(self, name: str, data: bytes, *, force: bool = False) -> None:
        """Write a file of the workspace. Raises PinfoldError."""
        from pinfold.app.storage.exports import Target

        outside = (await self.link.status()).outside

        def write() -> None:
            with Target(self.workspace / name, [self.workspace]) as target:
                target.write(data, force=force, outside=outside)

        await anyio.to_thread.run_sync(write)

    async def query(self, what: Listing) -> list[Mapping[str, Json]]:
        """Raises PinfoldError."""
        return await self.link.query(what)
