"""What was installed for this session while it lives: folders that join the import path, after everything else.

Programs that the session starts find them by PYTHONPATH and PATH.
"""

from __future__ import annotations

import os
import sys
from importlib import invalidate_caches


class Site:
    """Looks at one folder; each folder in it is one installation, put there whole."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen = -1

    def refresh(self) -> None:
        """Before a cell: one `stat`, and nothing more unless something was installed since the last one."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed == self._seen:
                return
            names = sorted(os.listdir(self._folder))
        except OSError:
            return  # it is the host's, and may not be there yet
        self._seen = changed
        try:
            for name in names:
                if not name.startswith("."):
                    path = f"{self._folder}/{name}"
                    if path not in sys.path:
                        sys.path.append(path)
                    _join("PYTHONPATH", path)
                    _join("PATH", f"{path}/bin")
            invalidate_caches()
        except Exception:  # noqa: S110 - the program replaced the path or a finder: what it imports is its own affair
            pass


def _join(variable: str, path: str) -> None:
    paths = [one for one in os.environ.get(variable, "").split(os.pathsep) if one]
    if path not in paths:
        os.environ[variable] = os.pathsep.join([*paths, path])
