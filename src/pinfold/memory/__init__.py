"""Long-term memory: notes that outlive sessions, found again by their words."""

from pinfold.memory.errors import MemoryUnusable, NoteRefused
from pinfold.memory.notes import Note
from pinfold.memory.store import MOST_NOTES, MOST_TAGS, MOST_UNTRUSTED, NOTE_CHARS, TAG_CHARS, Memory

__all__ = [
    "MOST_NOTES",
    "MOST_TAGS",
    "MOST_UNTRUSTED",
    "NOTE_CHARS",
    "TAG_CHARS",
    "Memory",
    "MemoryUnusable",
    "Note",
    "NoteRefused",
]
