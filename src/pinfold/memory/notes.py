"""What is remembered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    id: int
    text: str
    tags: tuple[str, ...]
    at: str
    """When it was written, in UTC."""
    trusted: bool
    """It was written by a session that had read nothing of others."""
    session: str
    here: bool
    """It is of the workspace that asks."""
