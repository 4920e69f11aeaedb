"""Short forms of text: capped, on one line, several names joined. What is left out is always counted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

BYTES_PER_TOKEN = 4
"""Roughly, for English and code."""
NO_OUTPUT = "(no output)"
"""Shown to the model in place of empty output."""


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
    count = len(lines) - (lines[-1] == "")  # a final line break does not begin another line
    if count <= limit:
        return text
    head = limit * 2 // 3
    note = _left_out(count - limit, count, "lines", whole)
    return "\n".join([*lines[:head], note, *lines[head + count - limit :]])


def _left_out(count: int, of: int, what: str, whole: str) -> str:
    return f"[... {count:,} of {of:,} {what} left out{f'; all of it: {whole}' if whole else ''} ...]"


def first_line(text: str, limit: int = 200) -> str:
    """The first line that is not blank, cut at `limit`."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 3] + "..."


def join_names(names: Sequence[str], most: int) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def numerous(what: str, count: int) -> str:
    """`1 turn`, or `3 turns`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def join_numbers(what: str, numbers: Sequence[int]) -> str:
    """`cell 3`, or `cells 3, 4`."""
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def homely(text: str) -> str:
    """`text` with `~` in place of the user's home folder in paths."""
    try:
        home = str(Path.home())
    except RuntimeError:  # the user has none
        return text
    return re.sub(rf"(?<![\w./~-]){re.escape(home)}/", "~/", text)
