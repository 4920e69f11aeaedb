"""What goes wrong with memory, by who can mend it."""

from __future__ import annotations

from pinfold.events import PinfoldError


class NoteRefused(PinfoldError):
    """The caller's: too long, too many, or not theirs to forget."""


class MemoryUnusable(PinfoldError):
    """The file's: damaged, of a newer Pinfold, or not to be had. The words say what to do."""
