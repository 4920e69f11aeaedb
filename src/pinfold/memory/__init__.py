"""Long-term memory: notes that outlive sessions, found again by their words."""

from pinfold.memory.store import Memory, MemoryUnusable, Note, NoteRefused

__all__ = ["Memory", "MemoryUnusable", "Note", "NoteRefused"]
