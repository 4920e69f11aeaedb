"""Days without end, which databases have and tables here have not."""

from __future__ import annotations

from typing import Any

from pinfold.tools.sql.libraries import arrow, compute
from pinfold.tools.sql.statement_pieces import Refused

_DAYS = 2_000_000_000
_PARTS = 9_200_000_000_000_000_000
"""Beyond any day that a database gives otherwise, whatever the unit."""


def refuse_infinite(column: Any, name: str) -> None:
    """Raises Refused: as a number it would be some day, silently wrong."""
    pa = arrow()
    pc = compute()
    is_date = pa.types.is_date32(column.type)
    if not is_date and not pa.types.is_timestamp(column.type):
        return
    ends = pc.min_max(column.cast(pa.int32() if is_date else pa.int64()))
    most = _DAYS if is_date else _PARTS
    if any(end is not None and abs(end) > most for end in (ends["min"].as_py(), ends["max"].as_py())):
        raise Refused(f"the column {name!r} holds infinity, which no table here can; select it as text instead")
