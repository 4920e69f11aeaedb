"""Long-term memory: notes that outlive sessions, found again by their words."""

from pinfold.memory.store import (
    MOST_TAGS,
    MOST_UNTRUSTED,
    NOTE_CHARS,
    Memory,
    MemoryUnusable,
    Note,
    NoteRefused,
)

__all__ = [
    "MOST_TAGS",
    "MOST_UNTRUSTED",
    "NOTE_CHARS",
    "Memory",
    "MemoryUnusable",
    "Note",
    "NoteRefused",
]
