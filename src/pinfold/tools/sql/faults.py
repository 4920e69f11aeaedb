"""What went wrong in a database, in its own words."""

from __future__ import annotations


class DatabaseFault(Exception):
    """The statement's fault or the server's: told to whoever wrote the statement."""
