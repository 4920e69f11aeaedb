"""The sessions on this machine: found, listed, removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pinfold.app.errors import NoSuchSession, SessionBusy
from pinfold.app.lock import holder_of
from pinfold.app.paths import data_dir, private_dir
from pinfold.events import SessionId, new_session_id
from pinfold.log import Summary, import_file, summarise


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelved:
    id: SessionId
    folder: Path
    summary: Summary
    size: int
    owner: int | None
    """The process that holds it live."""


class Shelf:
    def __init__(self) -> None:
        self.root = private_dir(private_dir(data_dir()) / "sessions")

    def place(self, session: SessionId) -> Path:
        """The folder of a session that begins."""
        return private_dir(self.root / session)

    def sessions(self) -> list[Shelved]:
        """Every session, the most recently used first."""
        return sorted(self._each(), key=lambda item: item.summary.last, reverse=True)

    def _each(self) -> Iterator[Shelved]:
        for folder in self.root.iterdir():
            if folder.name.startswith("s_") and folder.is_dir():
                summary = summarise(folder)
                yield Shelved(
                    id=SessionId(folder.name),
                    folder=folder,
                    summary=summary or Summary(title="(unreadable or empty)"),
                    size=sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()),
                    owner=holder_of(folder),
                )

    def find(self, name: str) -> tuple[SessionId, Path]:
        """By id, by the unique beginning of an id, by title, or `last`. Raises NoSuchSession."""
        if name.startswith("s_") and (folder := self.root / name).is_dir() and folder.parent == self.root:
            return SessionId(name), folder
        everything = self.sessions()
        if name == "last" and everything:
            return everything[0].id, everything[0].folder
        by_title = [item for item in everything if item.summary.named and item.summary.title == name]
        by_id = [item for item in everything if len(name) >= 3 and item.id.startswith(name)]
        matches = by_title or by_id
        if len(matches) == 1:
            return matches[0].id, matches[0].folder
        if matches:
            raise NoSuchSession(
                f"{name!r} fits {len(matches)} sessions: {', '.join(item.id for item in matches)}"
            )
        raise NoSuchSession(f"there is no session {name!r}; `pinfold sessions` lists them")

    def named(self, name: str) -> tuple[SessionId, Path] | None:
        try:
            return self.find(name)
        except NoSuchSession:
            return None

    def remove(self, session: SessionId) -> None:
        folder = self.root / session
        if (owner := holder_of(folder)) is not None:
            raise SessionBusy(f"{session} is in use by process {owner}; end that first")
        # Out of sight in one step: a removal that is cut off leaves no half session behind.
        doomed = folder.rename(self.root / f".removed-{session}")
        shutil.rmtree(doomed, ignore_errors=True)

    def collect(self, *, keep_days: float, quota_bytes: int) -> list[Shelved]:
        """Remove what is too old, then the oldest until the rest fits. Live sessions stay. Returns what went."""
        for leftover in self.root.glob(".removed-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        oldest_kept = (datetime.now(UTC) - timedelta(days=keep_days)).strftime("%Y-%m-%dT%H:%M:%S")
        everything = self.sessions()
        total = sum(item.size for item in everything)
        gone: list[Shelved] = []
        for item in reversed(everything):
            if item.owner is None and (item.summary.last < oldest_kept or total > quota_bytes):
                self.remove(item.id)
                total -= item.size
                gone.append(item)
        return gone

    def bring_in(self, source: Path) -> tuple[SessionId, int]:
        """Import a bundle or JSON lines as a session of its own: all of it or nothing."""
        session = new_session_id()
        # Under a name that `collect` sweeps, until it is whole.
        partial = private_dir(self.root / f".removed-{session}")
        try:
            count, origin = import_file(source, partial, session)
            if (
                not (self.root / origin).exists()
                and origin.startswith("s_")
                and origin.replace("_", "").isalnum()
            ):
                session = origin
            partial.rename(self.root / session)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return session, count
