"""The operator log, for faults in Pinfold itself: rotated and redacted. A session's history is in its event log."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import get_args

from pinfold.app.config.layers import load_config
from pinfold.app.config.schema import LogLevel
from pinfold.app.errors import ConfigError
from pinfold.app.paths import private_dir, state_dir
from pinfold.app.trust.secrets import hide_process_secrets
from pinfold.text import presentable

_SIZE = 2 << 20
_FILES = 3


class _RotatingHandler(logging.Handler):
    """Opens its file at the first record: most commands write none, and `logging.handlers` is slow to import."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: logging.Handler | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._file is None:
            from logging.handlers import RotatingFileHandler

            self._file = RotatingFileHandler(
                self._path, maxBytes=_SIZE, backupCount=_FILES, encoding="utf-8", delay=True
            )
            self._file.setFormatter(
                _PresentableFormatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
            )
        self._file.emit(record)


class _PresentableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return presentable(super().format(record))


def start_operator_log(level: str | None = None) -> None:
    """Write Pinfold's own log records to the state folder. If the folder cannot be used, go on without a log.

    `level` is the one the user typed; without it, LOG_LEVEL or the configuration decides.
    """
    usual = os.environ.get("LOG_LEVEL", "").lower()
    level = level or (usual if usual in get_args(LogLevel) else None)
    hide_process_secrets()
    root = logging.getLogger("pinfold")
    root.propagate = False
    root.addHandler(logging.NullHandler())
    # A log that cannot be written must not print tracebacks of its own.
    logging.raiseExceptions = False
    with contextlib.suppress(ConfigError, OSError):
        root.setLevel((level or load_config().config.log.level).upper())
        path = private_dir(private_dir(state_dir()) / "log") / "pinfold.log"
        root.addHandler(_RotatingHandler(path))
