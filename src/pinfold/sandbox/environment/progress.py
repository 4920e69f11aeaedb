"""How far a build is. Draws nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

Phase: TypeAlias = Literal["wait", "resolve", "download", "install", "compile"]


class Progress(Struct, frozen=True, kw_only=True):
    """`total` may be 0 while it is not known, and grow while downloads are found."""

    phase: Phase
    done: int = 0
    total: int = 0


OnProgress: TypeAlias = Callable[[Progress], None]


def unseen(_progress: Progress) -> None:
    """For whoever does not watch."""
