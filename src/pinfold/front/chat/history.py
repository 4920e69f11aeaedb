"""The input history of all chats: a private file of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

_READ = 1 << 20
_LONGEST = 10_000
_TRIMMED_AT = 4 << 20


def history_path() -> Path | None:
    """None if there is no home folder."""
    base = os.environ.get("XDG_STATE_HOME", "")
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises without a home
    if not base.startswith("/"):
        if not home.startswith("/"):
            return None
        base = f"{home}/.local/state"
    return Path(base) / "pinfold" / "history"


class FileHistory(History):
    """Errors of reading and writing are ignored."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Latest first."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _READ))
                lines = file.read().splitlines()[1 if size > _READ else 0 :]
        except OSError:
            return
        last = None
        for line in reversed(lines):
            try:
                text = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(text, str) and text and text != last:
                yield text
                last = text

    def store_string(self, string: str) -> None:
        if self._path is None or len(string) > _LONGEST:
            return
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _TRIMMED_AT:
                fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
                _append(fresh, self._path.read_bytes()[-_READ:].partition(b"\n")[2])
                fresh.replace(self._path)
            _append(self._path, json.dumps(string).encode("ascii") + b"\n")


def _append(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
