"""Whether there is anything of the user's own that a session's code could have read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class Privacy:
    """By the names in the workspace: what the session did not make itself is the user's. Once there was any, there is."""

    def __init__(self, workspace: Path, *, more: bool) -> None:
        """`more`: data or other folders are mounted."""
        self._workspace = workspace
        self._known: frozenset[str] = frozenset()
        """What is there by the session's own doing."""
        self.holds = more
        self.is_exposed = False
        """Code or a tool has run, or runs, that could have read it."""

    def about_to_read(self) -> None:
        if not self.holds:
            self.holds = bool(self._names() - self._known)
        self.is_exposed = self.is_exposed or self.holds

    def has_acted(self) -> None:
        if not self.holds:
            self._known = self._names()

    def _names(self) -> frozenset[str]:
        with suppress(OSError):
            return frozenset(path.name for path in self._workspace.iterdir())
        return frozenset()
