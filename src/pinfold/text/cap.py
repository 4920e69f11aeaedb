"""Bounds text of unknown size. What is left out is always said."""

from __future__ import annotations

BYTES_PER_TOKEN = 4
"""About, as for English and code."""
NO_OUTPUT = "(no output)"
"""What a model is told where there is nothing to be capped."""


def cap_text(text: str, limit: int, *, whole: str = "") -> str:
    """`text` if it fits in `limit` characters, else its head and tail around a line that counts the rest.

    `whole` names where all of it can be found, e.g. a blob.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    note = _left_out(len(text) - limit, len(text), "characters", whole)
    return f"{text[:head]}\n{note}\n{text[len(text) - tail :]}"


def capped_lines(text: str, limit: int, *, whole: str = "") -> str:
    """The same for lines."""
    lines = text.split("\n")
    count = len(lines) - (lines[-1] == "")  # what ends with a line break has no line after it
    if count <= limit:
        return text
    head = limit * 2 // 3
    note = _left_out(count - limit, count, "lines", whole)
    return "\n".join([*lines[:head], note, *lines[head + count - limit :]])


def _left_out(count: int, of: int, what: str, whole: str) -> str:
    return f"[... {count:,} of {of:,} {what} left out{f'; all of it: {whole}' if whole else ''} ...]"


def first_line(text: str, limit: int = 200) -> str:
    """One line fit for a message: the first that is not blank, cut at `limit`."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 3] + "..."
