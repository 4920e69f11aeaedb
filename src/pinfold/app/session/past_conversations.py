"""The index of past conversations, brought up to date from the sessions' logs whenever it is asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.app.paths import data_dir
from pinfold.app.session.options import is_imported
from pinfold.text import redact

if TYPE_CHECKING:
    from pinfold.memory import Conversations, PastMessage

_CHARS = 8000
"""Of one text."""
_STORE = "log.sqlite"
CONVERSATION = ("you", "agent")
"""Places of prompts and answers."""


def conversations_file() -> Path:
    return data_dir() / "conversations.db"


def search_conversations(
    words: str, limit: int, *, workspace: str | None = None, places: Iterable[str] = (), besides: str = ""
) -> list[PastMessage]:
    """What was said in past sessions, best first; see `Conversations.search`. Raises MemoryUnusable."""
    from pinfold.memory import Conversations, MemoryUnusable

    index = Conversations(conversations_file())
    try:
        _refresh(index)
    except MemoryUnusable as error:
        if error.is_passing:
            raise
        # All of it is in the logs.
        for suffix in ("", "-wal", "-shm"):
            Path(f"{conversations_file()}{suffix}").unlink(missing_ok=True)
        _refresh(index)
    return index.search(words, limit, workspace=workspace, places=places, besides=besides)


def forget_conversations(sessions: Iterable[str]) -> None:
    """Remove what is in the index of sessions that are removed."""
    if conversations_file().exists():
        from pinfold.memory import Conversations, MemoryUnusable

        with suppress(MemoryUnusable):  # the next search removes them
            Conversations(conversations_file()).remove(sessions)


def _refresh(index: Conversations) -> None:
    from pinfold.log import read_said
    from pinfold.memory import Message

    known = index.known()
    folders = {folder.name: folder for folder in (data_dir() / "sessions").glob("s_*")}
    index.remove(known.keys() - folders.keys())
    for session, folder in folders.items():
        stamp, last = known.get(session, ("", 0))
        now = _stamp(folder)
        if now == stamp:
            continue
        try:
            said = read_said(folder, last)
        except (sqlite3.Error, UnicodeDecodeError):
            continue  # removed meanwhile, or damaged, which other commands say
        index.add(
            session,
            [
                Message(seq=seq, place=place, at=at, text=redact(text[:_CHARS]))
                for seq, at, place, text in said.messages
            ],
            workspace=said.workspace,
            stamp=now,
            last=said.last,
            trusted=not said.untrusted and not is_imported(folder),
        )


def _stamp(folder: Path) -> str:
    """Changes with the log."""
    marks: list[str] = []
    for name in (_STORE, f"{_STORE}-wal"):
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            continue
        marks.append(f"{status.st_mtime_ns}:{status.st_size}")
    return " ".join(marks)
