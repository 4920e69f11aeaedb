"""What is said about a view. Paths are relative to the workspace."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

How: TypeAlias = Literal["added", "changed", "removed"]


class Change(Struct, frozen=True, order=True):
    path: str
    how: How


class LeftOut(Struct, frozen=True, order=True):
    path: str
    why: str


class MergeReport(Struct, frozen=True, kw_only=True):
    """Each in the order of their paths."""

    applied: tuple[Change, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Changed in the workspace since the session began, or below or above such a path; left as they are there."""
    left_out: tuple[LeftOut, ...] = ()
    """What is never brought over, and what could not be."""
