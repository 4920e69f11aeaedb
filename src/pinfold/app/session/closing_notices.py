"""What the user must know of a workspace once its session has closed. The command line says it last."""

from __future__ import annotations

from collections.abc import Iterable

_lines: list[str] = []
_is_broken = False


def add_closing_notices(lines: Iterable[str], *, is_broken: bool = False) -> None:
    """`is_broken`: the workspace is not as promised, so whoever waits for an exit code must see it."""
    global _is_broken  # noqa: PLW0603 - of this process: a session closes after all that knew of it
    _lines.extend(lines)
    _is_broken = _is_broken or is_broken


def pop_closing_notices() -> tuple[list[str], bool]:
    """The lines, and whether a workspace is not as promised."""
    lines = list(dict.fromkeys(_lines))
    _lines.clear()
    return lines, _is_broken
