"""What the host and the process that talks to a database say to each other."""

from __future__ import annotations

from typing import Any

import msgspec

from pinfold.tools.sql.sources import Source


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the host wants. `sql` None: to be told of the tables."""

    source: Source
    sql: str | None = None
    params: Any = None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. The table, if there is one, is in the file both hold."""

    text: str = ""
    """For the model."""
    value: Any = None
    """Where there is no table."""
    bytes: int = 0
    """Of the table."""
    came: int = 0
    """Bytes of rows that the database gave."""
    refused: str = ""
    """Why it was not run, or could not be."""
