"""Looks after a workspace that a session sees through a view: what the user adds that is secret is hidden at once.

Nothing is put back: the session cannot change the workspace, so whatever changes there is the user's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from pinfold.sandbox.guards.guarded_paths import GuardedPaths
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.sandbox.guards.ports import Mounts
from pinfold.sandbox.guards.secret_files import is_masked
from pinfold.sandbox.kernel.inotify import Watch
from pinfold.sandbox.views.view_folder import IN_VIEW


class ViewGuard:
    """Watches the top of the workspace and every folder that holds a secret, as far as there are watches."""

    def __init__(self, top: str, guards: GuardedPaths, *, shown: str, remount: Callable[[Mounts], None] | None) -> None:
        self._top = top
        self._shown = shown
        self._remount = remount
        self._watch: Watch | None = None
        cut = len(shown)
        folders = {(top + path[cut:]).rpartition("/")[0] for path, _, _ in guards.masked}
        folders.update(f"{top}/{folder}" for folder in guards.folders or () if folder)
        with suppress(OSError):
            self._watch = Watch()
            self._watch.add_all([top, *sorted(folders - {top})])

    @property
    def fd(self) -> int | None:
        return self._watch.fd if self._watch else None

    fought = None
    sees_names = True
    lost: tuple[str, ...] = ()

    def before(self, names: Names | None = NOTHING) -> None:
        self.on_names_changed(names)

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        self.on_names_changed(names)
        return ()

    def allow(self, path: str) -> None:
        """Whatever changes in the workspace is the user's."""

    def settle(self) -> tuple[str, ...]:
        return ()

    def settle_all(self, names: Names | None = NOTHING) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def final_notices(self) -> tuple[str, ...]:
        return ()

    def on_names_changed(self, names: Names | None = NOTHING) -> None:  # noqa: ARG002
        renamed, _ = (self._watch.changes() if self._watch else None) or (set[str](), set[str]())
        for path in sorted(renamed):
            if (secret := self._secret(path)) and self._remount:
                self._remount(Mounts(masked=[secret]))  # each alone: one that is gone stops the others

    def close(self) -> None:
        if self._watch:
            self._watch.close()

    def _secret(self, path: str) -> tuple[str, int, int] | None:
        inner = path[len(self._top) + 1 :]
        if not is_masked(inner):
            return None
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
            return None
        return f"{self._shown}/{inner}", IN_VIEW, status.st_ino
