"""How servers failed last, for other processes to see: a small file for each that did, gone once it works again."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import msgspec

from pinfold.app.paths import private_dir, state_dir

_WORDS = 500


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    why: str
    at: float
    """Seconds since the epoch."""
    until: float = 0.0
    """It is left alone by the session in which it failed."""


def _path(server: str) -> Path:
    return state_dir() / "mcp" / f"{server}.json"


def failure_of(server: str) -> Failure | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(_path(server).read_bytes(), type=Failure)
    return None


def note_failure(server: str, why: str, pause_s: float = 0.0) -> None:
    now = time.time()
    failure = Failure(why=why[:_WORDS], at=now, until=now + pause_s if pause_s else 0.0)
    # What cannot be noted must not stop anything.
    with contextlib.suppress(OSError):
        private_dir(_path(server).parent)
        _path(server).write_bytes(msgspec.json.encode(failure))


def note_success(server: str) -> None:
    with contextlib.suppress(OSError):
        _path(server).unlink(missing_ok=True)
