"""Several things in one line."""

from __future__ import annotations

from collections.abc import Sequence


def join_names(names: Sequence[str], most: int) -> str:
    """The first of them by name, the others by their number."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def numerous(what: str, count: int) -> str:
    """`1 turn`, or `3 turns`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def join_numbers(what: str, numbers: Sequence[int]) -> str:
    """`cell 3`, or `cells 3, 4`."""
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
