"""Long-term memory for tools, chat and command line: notes without secrets, and an index of past conversations."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pinfold.app.models.session_models import CallOptions
from pinfold.app.paths import data_dir
from pinfold.app.session.options import is_imported
from pinfold.events import RequestFailed, Sent
from pinfold.text import redact

if TYPE_CHECKING:
    from pinfold.app.config.schema import Config
    from pinfold.memory import Conversations, Embedder, Memory, Note, PastMessage

USER = ""
"""Stands for a session in notes that the user changes."""


class FoundNotes(Struct, frozen=True, kw_only=True):
    notes: list[Note]
    notice: str = ""
    """Why the search was by words alone, if embeddings are configured."""
    sent: tuple[Sent, ...] = ()


def memory_file() -> Path:
    return data_dir() / "memory.db"


def open_memory(workspace: Path | None = None, session: str = USER, embedder: Embedder | None = None) -> Memory:
    """Open the notes that a session can reach; without a workspace, all that the user can."""
    from pinfold.memory import Memory

    return Memory(memory_file(), None if workspace is None else str(workspace), session, embedder=embedder)


def refuse_secrets(*texts: str) -> None:
    """Raise NoteRefused for a text that holds a secret, or what looks like one."""
    if any(redact(text) != text for text in texts):
        from pinfold.memory import NoteRefused

        raise NoteRefused("not stored: the text holds what looks like a password or key; write it without")


def search_notes(
    words: str,
    limit: int,
    config: Config,
    *,
    workspace: Path | None = None,
    superseded: bool = False,
    untrusted: bool = False,
) -> FoundNotes:
    """Search by words, and by meaning if `[memory] embeddings` is set. Blocks. Raises NoteRefused, MemoryUnusable.

    For an `untrusted` session, nothing is sent to another machine.
    """
    notice = ""
    if (name := config.memory.embeddings) and words.strip() and memory_file().exists():
        from pinfold.model import ModelError
        from pinfold.model.embeddings import embeddings_named

        try:
            embedder = embeddings_named(name, CallOptions.of(config).access())
            if not (untrusted and embedder.to):
                found = open_memory(workspace, embedder=embedder).recall(words, limit, superseded=superseded)
                sent = (Sent(to=embedder.to, out=embedder.out),) if embedder.to and embedder.out else ()
                return FoundNotes(notes=found, sent=sent)
            notice = "this session has read outside text, so nothing was sent for embeddings"
        except (ModelError, RequestFailed, ImportError) as error:
            notice = f"embeddings were not available: {error}"
    found = open_memory(workspace).recall(words, limit, superseded=superseded)
    return FoundNotes(notes=found, notice=f"{notice}; searched by words alone" if notice else "")


# Past conversations: an index that is updated from the sessions' logs before each search.

_CHARS = 8000
"""Characters of one text that are indexed."""
CONVERSATION = ("you", "agent")
"""Places of prompts and answers."""


def conversations_file() -> Path:
    return data_dir() / "conversations.db"


def search_conversations(
    words: str, limit: int, *, workspace: str | None = None, places: Iterable[str] = (), besides: str = ""
) -> list[PastMessage]:
    """Search past sessions, best match first; see `Conversations.search`. Raises MemoryUnusable."""
    from pinfold.memory import Conversations, MemoryUnusable

    index = Conversations(conversations_file())
    try:
        _refresh(index)
    except MemoryUnusable as error:
        if error.is_passing:
            raise
        # The index can be rebuilt: all of it is in the logs.
        for suffix in ("", "-wal", "-shm"):
            Path(f"{conversations_file()}{suffix}").unlink(missing_ok=True)
        _refresh(index)
    return index.search(words, limit, workspace=workspace, places=places, besides=besides)


def forget_conversations(sessions: Iterable[str]) -> None:
    """Remove deleted sessions from the index."""
    if conversations_file().exists():
        from pinfold.memory import Conversations, MemoryUnusable

        with suppress(MemoryUnusable):  # the next search removes them
            Conversations(conversations_file()).remove(sessions)


def _refresh(index: Conversations) -> None:
    from pinfold.log import log_version, read_said
    from pinfold.memory import Message

    known = index.known()
    folders = {folder.name: folder for folder in (data_dir() / "sessions").glob("s_*")}
    index.remove(known.keys() - folders.keys())
    for session, folder in folders.items():
        stamp, last = known.get(session, ("", 0))
        now = repr(log_version(folder))
        if now == stamp:
            continue
        try:
            said = read_said(folder, last)
        except (sqlite3.Error, UnicodeDecodeError):
            continue  # removed meanwhile, or damaged, which other commands report
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
