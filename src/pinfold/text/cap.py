"""Bounds text of unknown size. What is left out is always said."""

from __future__ import annotations


def capped(text: str, limit: int, *, whole: str = "") -> str:
    """`text` if it fits in `limit` characters, else its head and tail around a line that counts the rest.

    `whole` names where all of it can be found, e.g. a blob.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    note = f"\n[... {len(text) - limit:,} of {len(text):,} characters left out{f'; all of it: {whole}' if whole else ''} ...]\n"
    return text[:head] + note + text[len(text) - tail :]


def capped_lines(text: str, limit: int, *, whole: str = "") -> str:
    """The same for lines."""
    lines = text.split("\n")
    ended = lines[-1:] == [""]
    if len(lines) - ended <= limit:
        return text
    head = limit * 2 // 3
    out = len(lines) - ended - limit
    note = f"[... {out:,} of {len(lines) - ended:,} lines left out{f'; all of it: {whole}' if whole else ''} ...]"
    return "\n".join([*lines[:head], note, *lines[head + out :]])


def first_line(text: str, limit: int = 200) -> str:
    """One line fit for a message: the first that is not blank, cut at `limit`."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 3] + "..."
