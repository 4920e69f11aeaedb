"""Long-term memory: notes that outlive sessions, and past conversations, both searchable by their words."""

from pinfold.memory.conversations import Conversations, Message, PastMessage
from pinfold.memory.relevance import Embedder
from pinfold.memory.store import Memory, MemoryUnusable, Note, NoteRefused, describe_note

__all__ = [
    "Conversations",
    "Embedder",
    "Memory",
    "MemoryUnusable",
    "Message",
    "Note",
    "NoteRefused",
    "PastMessage",
    "describe_note",
]
