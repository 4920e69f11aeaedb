"""What is said about a view. Paths are relative to the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

How: TypeAlias = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True, order=True)
class Change:
    path: str
    how: How


@dataclass(frozen=True, slots=True, order=True)
class LeftOut:
    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Each in the order of their paths."""

    applied: tuple[Change, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Changed in the workspace since the session began, or below or above such a path; left as they are there."""
    left_out: tuple[LeftOut, ...] = ()
    """What is never brought over, and what could not be."""
