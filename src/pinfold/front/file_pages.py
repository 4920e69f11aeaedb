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


def diff_page(changes: Sequence[FileChange], contents: Contents) -> Iterator[str]:
    """A heading for each file, then what changed in it; the first character of a line says how."""
    for change in changes:
        yield presentable_line(f"{change.path} ({change.how})")
        yield from _diff(change, contents)


def _diff(change: FileChange, contents: Contents) -> Iterator[str]:
    old = _text(change.before, contents) if change.how != "added" else ""
    new = _text(change.after, contents) if change.how != "removed" else ""
    if old is None or new is None:
        yield f"  not shown: {_why(change, contents)}"
        return
    lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    for at, line in enumerate(lines):
        if at < 2:  # the names, said already
            continue
        if at > _SHOWN:
            yield "  and more"
            return
        yield line


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
