"""Names that a program chose, fit to stand in a line that a person reads."""

from __future__ import annotations

MOST = 200
"""Characters of one name."""


def format_name(name: str) -> str:
    """In one line, without what could steer a terminal, and not endless."""
    cut = name if len(name) <= MOST else f"{name[:MOST]}..."
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in cut)
