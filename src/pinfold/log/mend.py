"""A store whose first page is damaged, made readable. That page holds SQLite's header and our tables, never events."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path

from pinfold.log.errors import LogError
from pinfold.log.rows import connect, last_row

_PAGE_BYTES = 4096
_VALID_FOR = slice(92, 96)
"""Of the header: if it is not the change counter, SQLite takes the file's own length for its size."""


def repair_header(path: Path) -> sqlite3.Connection | None:
    """A copy in memory with the first page of a fresh store; None if no event comes to light. Changes nothing on disk."""
    with tempfile.TemporaryDirectory() as name:
        fresh, copy = Path(name, "fresh.sqlite"), Path(name, "copy.sqlite")
        try:
            connect(fresh).close()
            shutil.copyfile(path, copy)
            if (log := Path(f"{path}-wal")).exists():
                shutil.copyfile(log, f"{copy}-wal")
            first = bytearray(fresh.read_bytes()[:_PAGE_BYTES])
            first[_VALID_FOR] = b"\xff\xff\xff\xff"
            with copy.open("r+b") as file:
                file.write(first)
            opened = connect(copy)
        except (LogError, OSError):
            return None
        try:
            memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            memory.text_factory = bytes
            opened.backup(memory)
            memory.execute("PRAGMA writable_schema = ON")  # as for any store that may be read but not written
            return memory if last_row(memory)[0] else None
        except sqlite3.Error:
            return None
        finally:
            opened.close()
