"""All that servers need of the app, in one hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pinfold.tools.mcp.ports import Credentials, Person, Pins, Programs, Sampler


@dataclass(kw_only=True)
class World:
    programs: Programs
    pins: Pins
    credentials: Credentials
    person: Person
    sampler: Sampler
    roots: Sequence[Path]
    on_changed: Callable[[str], None]
    """A server's tools are not what they were."""
    notice: Callable[[str], None]
    """One line for the user."""
