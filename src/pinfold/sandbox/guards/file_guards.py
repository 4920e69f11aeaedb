"""Keepers of all folders that one session may change, as one."""

from __future__ import annotations

import select
from collections.abc import Mapping

from pinfold.sandbox.guards.file_guard import FileGuard
from pinfold.sandbox.guards.new_names import NOTHING, Names


class FileGuards:
    """The first is of the workspace: of it the history of the files tells names, and its lines name paths in there."""

    def __init__(self, keepers: Mapping[str, FileGuard]) -> None:
        """By the path of the folder."""
        self._keepers = keepers
        self._workspace = next(iter(keepers), "")
        self._poll = select.epoll()
        for keeper in self._keepers.values():
            if keeper.fd is not None:
                self._poll.register(keeper.fd, select.EPOLLIN)

    @property
    def fd(self) -> int:
        return self._poll.fileno()

    def before(self, names: Names | None = NOTHING) -> None:
        for path, keeper in self._keepers.items():
            keeper.before(self._names(path, names))

    def on_names_changed(self, names: Names | None = NOTHING) -> None:
        for path, keeper in self._keepers.items():
            keeper.on_names_changed(self._names(path, names))

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        return self._prefix_paths({path: it.after(self._names(path, names)) for path, it in self._keepers.items()})

    def allow(self, path: str) -> None:
        for keeper in self._keepers.values():
            keeper.allow(path)

    @property
    def sees_names(self) -> bool:
        return self._keepers[self._workspace].sees_names

    @property
    def fought(self) -> str | None:
        return next((keeper.fought for keeper in self._keepers.values() if keeper.fought), None)

    def settle(self) -> tuple[str, ...]:
        return self._prefix_paths({path: keeper.settle() for path, keeper in self._keepers.items()})

    def settle_all(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        return self._prefix_paths({path: it.settle_all(self._names(path, names)) for path, it in self._keepers.items()})

    def final_notices(self) -> tuple[str, ...]:
        return tuple(
            line if path == self._workspace else f"In {path}: {line}"
            for path, keeper in self._keepers.items()
            for line in keeper.final_notices()
        )

    @property
    def lost(self) -> tuple[str, ...]:
        return self._prefix_paths({path: keeper.lost for path, keeper in self._keepers.items()})

    def close(self) -> None:
        self._poll.close()
        for keeper in self._keepers.values():
            keeper.close()

    def _names(self, path: str, names: Names | None) -> Names | None:
        """Of other folders nobody tells, unless only what they saw themselves is asked for."""
        return names if path == self._workspace or names is NOTHING else None

    def _prefix_paths(self, lines: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(
            line if path == self._workspace else f"{path}/{line}" for path, said in lines.items() for line in said
        )
