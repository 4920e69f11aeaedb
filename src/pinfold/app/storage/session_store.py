"""The sessions on this machine: find, list, read and remove them; their tree of forks.

A session has one owner. The kernel releases the owner's lock when its process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from pinfold.app.errors import NoSuchSession, SessionBusy
from pinfold.app.paths import data_dir, explain_errors, forget_scratch, private_dir
from pinfold.app.session.notes import forget_conversations, search_conversations
from pinfold.app.session.options import IMPORTED
from pinfold.engine import fold
from pinfold.events import ActionId, ActionStarted, Entry, SessionId, new_session_id
from pinfold.log import Damage, Log, LogUnreadable, Match, Place, Summary, import_file, log_version, matches, summarise
from pinfold.sandbox.kernel.folders import remove_folder
from pinfold.text import first_line, presentable_line

_LOCK = "owner.lock"
_TRIES = 5
_TRY_AGAIN_S = 0.01


class Claim:
    """An owner's lock, held from `claim` until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def claim(folder: Path) -> Claim | None:
    """Become the owner of the session; None if another process is."""
    with explain_errors(f"{folder} cannot be used"):
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _try_lock(descriptor):
        os.close(descriptor)
        return None
    # The process id is only for messages. On a full disk it is missing, and the lock holds all the same.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return Claim(descriptor)


def _try_lock(descriptor: int) -> bool:
    # `holder_of` takes the lock for a moment only, so retry; an owner holds it for longer.
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TRY_AGAIN_S)
        else:
            return True
    return False


def holder_of(folder: Path) -> int | None:
    """Return the owner's process id as it wrote it (0 if unknown); None if the session is not held."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        number = os.pread(descriptor, 20, 0)
        return int(number) if number.isdigit() else 0
    finally:
        os.close(descriptor)
    return None


def end_holder(folder: Path, who: str, limit_s: float) -> bool:
    """Terminate the process that holds the lock and wait for its end; False if there is none. Raises SessionBusy."""
    pid = holder_of(folder)
    if not pid:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + limit_s
    while holder_of(folder) is not None:
        if time.monotonic() > until:
            raise SessionBusy(f"{who}, process {pid}, did not end in time; try again later")
        time.sleep(_TRY_AGAIN_S)
    return True


_ID = re.compile(r"s_[0-9a-z]{1,40}")
_TIME = "%Y-%m-%dT%H:%M:%S"
_DAYS = 36500.0
_FOUND = 50
"""Maximum matches of one search."""
_LINE = 300
_LISTED = 60
"""Maximum names listed of a folder."""


def _size(folder: Path) -> int:
    """Return bytes on disk. Sessions may make very deep trees and sparse files; paths too long to open do not count."""
    total, waiting = 0, [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as inside:
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    total += min(status.st_size, status.st_blocks * 512)
    return total


class StoredSession(Struct, frozen=True, kw_only=True):
    id: SessionId
    folder: Path
    summary: Summary
    readable: bool
    size: int
    owner: int | None
    """Process id of its live owner."""


class SessionStore:
    def __init__(self) -> None:
        self.root = private_dir(private_dir(data_dir()) / "sessions")
        self._known: dict[str, tuple[tuple[object, ...], Summary | None]] = {}
        """Cached summaries by session, each with the mark of the log it was made from."""

    def folder_of(self, session: SessionId) -> Path:
        """Return the folder of a session; the first owner creates it."""
        return self.root / session

    def summary_of(self, session: SessionId) -> Summary:
        """Return the session's summary, empty if it cannot be read."""
        return summarise(self.folder_of(session)) or Summary()

    def sessions(self, most: int | None = None) -> list[StoredSession]:
        """Return all sessions, or at most `most`, the most recently used first."""
        return [self._stored(*about) for about in self.summaries()[:most]]

    def summaries(self) -> list[tuple[Path, Summary, bool]]:
        """Return each session's folder, summary and whether it is readable; the most recently used first."""
        found: list[tuple[Path, Summary, bool]] = []
        for folder in self.root.glob("s_*"):
            # Another process may remove a session meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found.append((folder, *self._summarise(folder)))
        self._known = {folder.name: self._known[folder.name] for folder, *_ in found if folder.name in self._known}
        return sorted(found, key=lambda item: item[1].last, reverse=True)

    def _summarise(self, folder: Path) -> tuple[Summary, bool]:
        mark, (known_mark, known) = log_version(folder), self._known.get(folder.name, ((), None))
        if mark != known_mark:
            known = summarise(folder)
            self._known[folder.name] = mark, known
        summary = known or Summary(title="(unreadable)")
        if not summary.events:
            last = datetime.fromtimestamp(folder.stat().st_mtime, UTC).strftime(_TIME)
            summary = replace(summary, last=last, title="(empty)" if known else summary.title)
        return summary, known is not None

    def search(self, words: Sequence[str]) -> list[tuple[StoredSession, list[Match]]]:
        """Search what was said, run or printed. Return sessions with their matches, best first."""
        places: dict[str, list[Match]] = {}
        for one in search_conversations(" ".join(words), _FOUND):
            text = first_line(one.text.strip(), _LINE)
            places.setdefault(one.session, []).append(Match(place=cast("Place", one.place), seq=one.seq, text=text))
        found: list[tuple[StoredSession, list[Match]]] = []
        for session, hits in places.items():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found.append((self.read(SessionId(session)), hits))
        return found

    def search_exactly(self, words: Sequence[str]) -> list[tuple[StoredSession, list[Match]]]:
        """Return sessions that contain every word literally, with the matches; the most recently used first."""
        found = [
            (self.read(SessionId(folder.name)), hits)
            for folder in self.root.glob("s_*")
            if (hits := matches(folder, words))
        ]
        return sorted(found, key=lambda pair: pair[0].summary.last, reverse=True)

    def read(self, session: SessionId) -> StoredSession:
        """Raises FileNotFoundError."""
        folder = self.folder_of(session)
        return self._stored(folder, *self._summarise(folder))

    @staticmethod
    def _stored(folder: Path, summary: Summary, is_readable: bool) -> StoredSession:
        return StoredSession(
            id=SessionId(folder.name),
            folder=folder,
            summary=summary,
            readable=is_readable,
            size=_size(folder),
            owner=holder_of(folder),
        )

    def find(self, name: str) -> tuple[SessionId, Path]:
        """Find a session by id, unique prefix of an id, title, or `last`. Raises NoSuchSession."""
        if _ID.fullmatch(name) and (folder := self.root / name).is_dir():
            return SessionId(name), folder
        everything = self.summaries()
        if name == "last":
            if not everything:
                raise NoSuchSession("there are no sessions yet; `pinfold` begins one")
            matches = [_last_used(everything)]
        else:
            by_title = [folder for folder, summary, _ in everything if summary.named and summary.title == name]
            matches = by_title or [one for one, *_ in everything if len(name) >= 3 and one.name.startswith(name)]
        if len(matches) == 1:
            return SessionId(matches[0].name), matches[0]
        if matches:
            fitting = ", ".join(folder.name for folder in matches)
            raise NoSuchSession(f"{name!r} fits {len(matches)} sessions: {fitting}", several=True)
        raise NoSuchSession(f"there is no session {name!r}; `pinfold sessions` lists them")

    def last_in(self, workspace: Path) -> SessionId:
        """The session used last in this folder. Raises NoSuchSession."""
        here = [about for about in self.summaries() if about[1].workspace == str(workspace)]
        if not here:
            hint = "`pinfold` begins one, and `pinfold sessions` lists those elsewhere"
            raise NoSuchSession(f"no session has worked in {workspace} yet; {hint}")
        return SessionId(_last_used(here).name)

    @contextlib.contextmanager
    def hold_name_lock(self) -> Generator[None]:
        """Hold the lock under which new sessions are named."""
        with (self.root / ".naming").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove(self, session: SessionId) -> None:
        """Raises SessionBusy."""
        for _ in self.remove_all([session]):
            pass

    def remove_all(self, sessions: Iterable[SessionId]) -> Iterator[SessionId]:
        """Yield each session once it is removed. Raises SessionBusy."""
        try:
            for session in sessions:
                self._remove_folder(session)
                yield session
        finally:
            self._remove_unused_contents()

    def _remove_folder(self, session: SessionId) -> None:
        folder = self.root / session
        held = claim(folder)
        if held is None:
            raise SessionBusy(f"{session} is in use by process {holder_of(folder) or '?'}; end that first")
        # Rename first, so that a removal that is cut off leaves no half session behind.
        doomed = folder.rename(self.root / f".removed-{session}")
        held.release()
        remove_folder(doomed)
        forget_scratch(session)
        forget_conversations([session])

    def _remove_unused_contents(self) -> dict[str, Path]:
        """Remove stored file contents of workspaces that no session uses any more.

        Returns the contents that are used, by the name of each session that uses them.
        """
        from pinfold.sandbox.file_history.shared_contents import LINK, remove_shared_contents

        used: dict[str, Path] = {}
        for link in self.root.glob(f"*/state/files/{LINK}"):
            with contextlib.suppress(FileNotFoundError):  # its session is being removed too
                used[link.parents[2].name] = link.resolve()
        for folder in {one.resolve() for one in (self.root.parent / "contents").glob("*")}.difference(used.values()):
            remove_shared_contents(folder)
        return used

    def collect(self, *, keep_days: float, quota_bytes: float) -> list[StoredSession]:
        """Remove sessions that are too old, then the oldest until the rest fits. Returns what was removed.

        Live sessions stay. So do unreadable ones, because the user may be able to repair them.
        """
        for leftover in self.find_unfinished():
            remove_folder(leftover)
        contents = self._remove_unused_contents()
        oldest_kept = (datetime.now(UTC) - timedelta(days=min(keep_days, _DAYS))).strftime(_TIME)
        everything = self.sessions()
        total = sum(item.size for item in everything) + sum(map(_size, {*contents.values()}))
        gone: list[StoredSession] = []
        for item in reversed(everything):
            if item.owner is None and item.readable and (item.summary.last < oldest_kept or total > quota_bytes):
                with contextlib.suppress(SessionBusy):
                    self._remove_folder(item.id)
                    gone.append(item)
                    total -= item.size
                    used = contents.pop(item.id, None)
                    if used is not None and used not in contents.values():
                        total -= _size(used)
        self._remove_unused_contents()
        return gone

    def find_unfinished(self) -> list[Path]:
        """Return folders left by removals and imports that were cut off."""
        found = list(self.root.glob(".removed-*"))
        for folder in self.root.glob(".importing-*"):
            if held := claim(folder):
                found.append(folder)
                held.release()
        return sorted(found)

    def import_session(self, source: Path) -> tuple[SessionId, int]:
        """Import a bundle or JSON lines as a session, completely or not at all; return its id and number of events."""
        session = new_session_id()
        with self.stage_session(session) as partial:
            count, origin = import_file(source, partial, session)
            (partial / IMPORTED).touch()
            if _ID.fullmatch(origin) and not (self.root / origin).exists():
                session = origin
            partial.rename(self.root / session)
        return session, count

    @contextlib.contextmanager
    def stage_session(self, session: SessionId) -> Generator[Path]:
        """Yield a temporary folder for a new session. The caller renames it to its place; on failure it is removed."""
        # If this process is killed, `collect` removes folders of this name.
        partial = private_dir(self.root / f".importing-{session}")
        held = claim(partial)
        with contextlib.ExitStack() as at_end, contextlib.ExitStack() as on_failure:
            if held:
                at_end.callback(held.release)
            on_failure.callback(remove_folder, partial)
            yield partial
            on_failure.pop_all()


def _last_used(summaries: Sequence[tuple[Path, Summary, bool]]) -> Path:
    """Return the first folder, but that of a fork nobody has opened only if there is no other."""
    return min(summaries, key=lambda about: about[1].is_unopened_fork)[0]


class SessionNode(Summary, frozen=True, kw_only=True):
    """A session's summary with its id and whether it is live."""

    id: SessionId
    is_live: bool = False


class SessionTree(Struct, frozen=True, kw_only=True):
    ancestors: tuple[SessionNode, ...]
    """Sessions it was forked from, the nearest first; removed ones have only an id."""
    children: tuple[tuple[int, SessionNode], ...]
    """Sessions forked from it, each with its depth; children follow their parents."""


def list_nodes(store: SessionStore) -> list[SessionNode]:
    """Return all readable sessions, the most recently used first."""
    return [
        SessionNode(id=SessionId(folder.name), is_live=holder_of(folder) is not None, **asdict(summary))
        for folder, summary, is_readable in store.summaries()
        if is_readable and summary.events
    ]


def build_session_tree(session: SessionId, everyone: list[SessionNode]) -> SessionTree:
    by_id = {node.id: node for node in everyone}
    ancestors: dict[str, SessionNode] = {}
    here = by_id.get(session)
    while here and here.source and here.source not in (session, *ancestors):
        source = SessionId(here.source)
        here = by_id.get(source)
        ancestors[source] = here or SessionNode(id=source, title="(removed)")
    children = tuple(_children(session, everyone, 1, {session}))
    return SessionTree(ancestors=tuple(ancestors.values()), children=children)


def _children(
    session: SessionId, everyone: list[SessionNode], depth: int, seen: set[SessionId]
) -> Iterator[tuple[int, SessionNode]]:
    for node in everyone:
        if node.source == session and node.id not in seen:
            seen.add(node.id)
            yield depth, node
            yield from _children(node.id, everyone, depth + 1, seen)


@contextlib.contextmanager
def read_session(folder: Path, session: SessionId) -> Generator[tuple[Log, Damage]]:
    """Open a session's log for reading. Damage found while reading is noted in the second value."""
    if not (folder / "log.sqlite").is_file():
        raise LogUnreadable(f"{session} holds no log")
    with contextlib.closing(Log(folder, session)) as log:
        yield log, Damage()


def read_entries(folder: Path, session: SessionId, after: int = 0) -> list[Entry]:
    """Raises LogError."""
    with read_session(folder, session) as (log, damage):
        return list(log.read(after, damage))


def label_cells(entries: Sequence[Entry]) -> dict[ActionId, str]:
    """Return a label for each cell: its number, and whether it was undone."""
    undone = fold(entries).undone
    started = (entry.event for entry in entries if isinstance(entry.event, ActionStarted))
    return {
        event.id: f"cell {event.cell}{', undone' if event.cell in undone else ''}"
        for event in started
        if event.cell is not None
    }


def list_lasting_effects(folder: Path, session: SessionId, to: int | None) -> tuple[str, ...]:
    """Return the effects that an undo to after cell `to`, or of the last cell, will not undo."""
    state = fold(read_entries(folder, session))
    path = state.path
    return state.effects_of(path[-1:] if to is None else tuple(cell for cell in path if cell > to))


def list_folder(workspace: Path) -> list[str]:
    """List the entries of a folder in printable lines, folders first, at most _LISTED."""
    try:
        with os.scandir(workspace) as inside:
            entries = sorted((not entry.is_dir(follow_symlinks=False), entry.name) for entry in inside)
    except OSError as error:
        return [f"  it cannot be read: {error.strerror}"]
    names = [f"  {presentable_line(name)}{'' if is_file else '/'}" for is_file, name in entries[:_LISTED]]
    if len(entries) > _LISTED:
        names.append(f"  and {len(entries) - _LISTED:,} more")
    return names or ["  (empty)"]
