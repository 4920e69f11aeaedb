"""What is said of one thing that was looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from pinfold.app.config.layers import Config, Loaded

Section: TypeAlias = Literal[
    "versions", "configuration", "sandboxes", "models", "MCP servers", "databases", "folders", "leftovers"
]
Standing: TypeAlias = Literal["ok", "note", "fault"]
"""`note`: it could be better, or is merely absent. `fault`: something that is wanted does not work."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    section: Section
    what: str
    standing: Standing = "ok"
    words: str = ""
    """How it is, where it works."""
    cause: str = ""
    """Why it does not, or not quite."""
    fix: str = ""
    """What to type, or to do."""


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them are told."""

    workspace: Path
    loaded: Loaded
    """Nothing but defaults where the configuration does not load."""
    limit_s: float
    """For each thing that is started or asked."""

    @property
    def config(self) -> Config:
        return self.loaded.config
