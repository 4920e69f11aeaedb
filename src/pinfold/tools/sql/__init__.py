"""The user's databases, read from code: statements that only read, rows as Arrow, passwords on the host."""

from pinfold.tools.sql.sources import (
    MAX_MB,
    MAX_ROWS,
    NAME,
    TIMEOUT_S,
    Address,
    BadAddress,
    Kind,
    Source,
    read_address,
    show_address,
)

__all__ = [
    "MAX_MB",
    "MAX_ROWS",
    "NAME",
    "TIMEOUT_S",
    "Address",
    "BadAddress",
    "Kind",
    "Source",
    "read_address",
    "show_address",
]
