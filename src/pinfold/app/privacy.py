"""Whether there is anything of the user's own that a session's code could have read."""

from __future__ import annotations

import os
from pathlib import Path

MOST = 20_000
"""Files and folders that are told apart; where there are more, they count as the user's."""


class Privacy:
    """What is in the workspace and was not left there by the session itself is the user's. Once there was any, there is.

    The session cannot hide what the user puts in: every change of a file changes its ctime, which no program can set.
    """

    def __init__(self, workspace: Path, *, more: bool) -> None:
        """`more`: data or other folders are mounted."""
        self._workspace = workspace
        self._known: frozenset[tuple[int, int]] = frozenset()
        """What is there by the session's own doing."""
        self.holds = more
        self.is_exposed = False
        """Code or a tool has run, or runs, that could have read it."""

    def look(self) -> None:
        """Before something changes that is not the user's doing."""
        if not self.holds:
            now = self._now()
            self.holds = now is None or bool(now - self._known)

    def about_to_read(self) -> bool:
        """Whether this is the first time that there is something."""
        self.look()
        was, self.is_exposed = self.is_exposed, self.is_exposed or self.holds
        return self.is_exposed and not was

    def reveal(self) -> bool:
        """Something of the user's own is read that is not in the workspace; whether that is the first time."""
        self.holds = True
        return self.about_to_read()

    def has_acted(self) -> None:
        if not self.holds:
            now = self._now()
            self._known, self.holds = now or frozenset(), now is None

    def _now(self) -> frozenset[tuple[int, int]] | None:
        """Each file and folder as it is; None if that cannot be told. A folder is the same one when files in it come and go."""
        found: set[tuple[int, int]] = set()
        try:
            folders = [os.fspath(self._workspace)]
            while folders:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        about = entry.stat(follow_symlinks=False)
                        is_folder = entry.is_dir(follow_symlinks=False)
                        found.add((about.st_ino, 0 if is_folder else about.st_ctime_ns))
                        if len(found) > MOST:
                            return None
                        if is_folder:
                            folders.append(entry.path)
        except OSError:
            return None
        return frozenset(found)
