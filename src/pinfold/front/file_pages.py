"""Changes of files as lines of plain text, fit to print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import TypeAlias

from pinfold.events import BlobId, FileChange
from pinfold.front.pages import WIDTH, columns, size_in_words
from pinfold.text import presentable, presentable_line

Contents: TypeAlias = Mapping[BlobId, bytes]
_SHOWN = 400
"""Lines of one file's diff."""
_LISTED = 100


def changes_page(changes: Sequence[FileChange], others: int = 0, width: int = WIDTH) -> list[str]:
    rows = [(change.how, change.path) for change in changes[:_LISTED]]
    lines = columns(rows, width=width, indent=2)
    more = max(0, len(changes) - _LISTED) + others
    return [*lines, f"  and {more:,} more"] if more else lines


def diff_page(changes: Sequence[FileChange], contents: Contents, most: int = _SHOWN, whole: str = "") -> Iterator[str]:
    """A heading for each file with lines added and removed, then at most so many; the first character of a line says how.

    `whole`: what shows the rest.
    """
    for change in changes:
        lines = _diff(change, contents)
        if lines is None:
            yield presentable_line(f"{change.path} ({change.how})")
            yield f"  not shown: {_why(change, contents)}"
            continue
        added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        yield presentable_line(f"{change.path} ({change.how}, +{added:,} -{removed:,})")
        yield from lines[:most]
        if len(lines) > most:
            yield f"  and {len(lines) - most:,} lines more{whole and f'; {whole}'}"


def _diff(change: FileChange, contents: Contents) -> list[str] | None:
    old = _text(change.before, contents) if change.how != "added" else ""
    new = _text(change.after, contents) if change.how != "removed" else ""
    if old is None or new is None:
        return None
    # Without the names, which are said already.
    return list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3))[2:]


def _text(blob: BlobId | None, contents: Contents) -> str | None:
    """None where it is no text, or not kept. Made presentable as a whole, so that no secret is cut in two."""
    data = contents.get(blob) if blob is not None else None
    if data is None or b"\0" in data:
        return None
    try:
        return presentable(data.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def _why(change: FileChange, contents: Contents) -> str:
    kept = [contents.get(blob) for blob in (change.before, change.after) if blob is not None]
    sizes = [len(data) for data in kept if data is not None]
    if not sizes:
        return "it is too large to be kept"
    return f"it is no text ({' -> '.join(map(size_in_words, sizes))})"
