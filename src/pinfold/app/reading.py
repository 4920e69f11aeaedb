"""Reading a session without owning it: for showing and for carrying it elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pinfold.events import SessionId
from pinfold.log import Damage, Log, LogUnreadable


@contextmanager
def read_session(folder: Path, session: SessionId) -> Generator[tuple[Log, Damage]]:
    """The log to read from, and the damage that reading it will note."""
    if not (folder / "log.sqlite").is_file():
        raise LogUnreadable(f"{session} holds no log")
    log = Log(folder, session)
    try:
        yield log, Damage()
    finally:
        log.close()
