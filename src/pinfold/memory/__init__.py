"""Long-term memory: notes that outlive sessions, and past conversations, found again by their words."""

from pinfold.memory.conversations import Conversations, Message, PastMessage
from pinfold.memory.database import MemoryUnusable
from pinfold.memory.store import Memory, Note, NoteRefused, Scope, describe_note
from pinfold.memory.vectors import Embedder

__all__ = [
    "Conversations",
    "Embedder",
    "Memory",
    "MemoryUnusable",
    "Message",
    "Note",
    "NoteRefused",
    "PastMessage",
    "Scope",
    "describe_note",
]
