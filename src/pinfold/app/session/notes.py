"""Long-term notes, as tools, the chat and the command line use them: without secrets, found by words and perhaps by meaning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pinfold.app.models.session_models import CallOptions
from pinfold.app.paths import data_dir
from pinfold.events import RequestFailed, Sent
from pinfold.text import redact

if TYPE_CHECKING:
    from pinfold.app.config.schema import Config
    from pinfold.memory import Embedder, Memory, Note

USER = ""
"""The session of notes that the user changes."""


class FoundNotes(Struct, frozen=True, kw_only=True):
    notes: list[Note]
    notice: str = ""
    """Why they were found by words alone."""
    sent: tuple[Sent, ...] = ()


def memory_file() -> Path:
    return data_dir() / "memory.db"


def open_memory(workspace: Path | None = None, session: str = USER, embedder: Embedder | None = None) -> Memory:
    """Of a session, or all of it."""
    from pinfold.memory import Memory

    return Memory(memory_file(), None if workspace is None else str(workspace), session, embedder=embedder)


def refuse_secrets(*texts: str) -> None:
    """Raises NoteRefused for a text that holds a secret, or what looks like one."""
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
    """By words, and by meaning where `[memory] embeddings` says so. Blocks. Raises NoteRefused, MemoryUnusable.

    A session that is `untrusted` sends nothing to another machine for it.
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
