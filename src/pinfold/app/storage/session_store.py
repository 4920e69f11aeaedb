"""The sessions on this machine: found, listed, read, removed, by name and by descent; and what a killed Pinfold left behind.

A session has one owner: its lock is let go by the kernel when the holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from pinfold.app.errors import NoSuchSession, SessionBusy
from pinfold.app.paths import cache_dir, data_dir, explain_errors, forget_scratch, private_dir, up_dir, warm_dir
from pinfold.app.session.notes import forget_conversations, search_conversations
from pinfold.app.session.options import IMPORTED
from pinfold.engine import fold
from pinfold.events import ActionId, ActionStarted, Entry, SessionId, new_session_id
from pinfold.log import Damage, Log, LogUnreadable, Match, Place, Summary, import_file, mark_of, matches, summarise
from pinfold.sandbox.environment import find_unfinished
from pinfold.sandbox.kernel.folders import in_use, remove_folder
from pinfold.text import first_line, presentable_line

_LOCK = "owner.lock"
_TRIES = 5
_TRY_AGAIN_S = 0.01


class Claim:
    """Held from `claim` until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def claim(folder: Path) -> Claim | None:
    """Become the owner of the session, or None if another process is."""
    with explain_errors(f"{folder} cannot be used"):
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _try_lock(descriptor):
        os.close(descriptor)
        return None
    # The number is for messages only; the lock is held without it, on a full disk too.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return Claim(descriptor)


def _try_lock(descriptor: int) -> bool:
    # Someone who only looks holds the lock for a moment; an owner holds it for longer than this.
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TRY_AGAIN_S)
        else:
            return True
    return False


def holder_of(folder: Path) -> int | None:
    """The owner's process id, as it wrote it; None if the session is not held."""
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
    """Tell the process that holds it to end, and wait until it has; False if none does. Raises SessionBusy."""
    pid = holder_of(folder)
    if not pid:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + limit_s
    while holder_of(folder) is not None:
        if time.monotonic() > until:
            raise SessionBusy(f"{who}, process {pid}, does not end; try again later")
        time.sleep(_TRY_AGAIN_S)
    return True


_ID = re.compile(r"s_[0-9a-z]{1,40}")
_TIME = "%Y-%m-%dT%H:%M:%S"
_DAYS = 36500.0
_FOUND = 50
"""Places that one search gives."""
_LINE = 300
_LISTED = 60
"""Names of a folder."""


def _size(folder: Path) -> int:
    """Bytes on disk. A session may have made some of it, deep as it likes and full of holes: what cannot be named does not count."""
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
    """The process that holds it live."""


class SessionStore:
    def __init__(self) -> None:
        self.root = private_dir(private_dir(data_dir()) / "sessions")
        self._known: dict[str, tuple[tuple[object, ...], Summary | None]] = {}
        """Summaries by session, each with the mark of its log."""

    def folder_of(self, session: SessionId) -> Path:
        """Where a session that begins will lie; its first owner makes the folder."""
        return self.root / session

    def summary_of(self, session: SessionId) -> Summary:
        """Empty if it cannot be read."""
        return summarise(self.folder_of(session)) or Summary()

    def sessions(self, most: int | None = None) -> list[StoredSession]:
        """Every session, the most recently used first; or so many of them."""
        return [self._stored(*about) for about in self.summaries()[:most]]

    def summaries(self) -> list[tuple[Path, Summary, bool]]:
        """Of each session, and whether it can be read; the most recently used first."""
        found: list[tuple[Path, Summary, bool]] = []
        for folder in self.root.glob("s_*"):
            # Any of it may be removed by another process meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found.append((folder, *self._summarise(folder)))
        self._known = {folder.name: self._known[folder.name] for folder, *_ in found if folder.name in self._known}
        return sorted(found, key=lambda item: item[1].last, reverse=True)

    def _summarise(self, folder: Path) -> tuple[Summary, bool]:
        mark, (known_mark, known) = mark_of(folder), self._known.get(folder.name, ((), None))
        if mark != known_mark:
            known = summarise(folder)
            self._known[folder.name] = mark, known
        summary = known or Summary(title="(unreadable)")
        if not summary.events:
            last = datetime.fromtimestamp(folder.stat().st_mtime, UTC).strftime(_TIME)
            summary = replace(summary, last=last, title="(empty)" if known else summary.title)
        return summary, known is not None

    def search(self, words: Sequence[str]) -> list[tuple[StoredSession, list[Match]]]:
        """Sessions by how well what was said, run or printed in them fits the words, the best first; and where that is."""
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
        """Sessions in which every word stands, letter by letter, and where; the most recently used first."""
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
        """By id, by the unique beginning of an id, by title, or `last`. Raises NoSuchSession."""
        if _ID.fullmatch(name) and (folder := self.root / name).is_dir():
            return SessionId(name), folder
        everything = self.summaries()
        if name == "last" and everything:
            matches = [everything[0][0]]
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
        found = next((one.name for one, summary, _ in self.summaries() if summary.workspace == str(workspace)), None)
        if found is None:
            hint = "`pinfold` begins one, and `pinfold sessions` lists those elsewhere"
            raise NoSuchSession(f"no session has worked in {workspace} yet; {hint}")
        return SessionId(found)

    @contextlib.contextmanager
    def hold_name_lock(self) -> Generator[None]:
        """Hold the lock under which new sessions are named."""
        with (self.root / ".naming").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove(self, session: SessionId) -> None:
        folder = self.root / session
        held = claim(folder)
        if held is None:
            raise SessionBusy(f"{session} is in use by process {holder_of(folder) or '?'}; end that first")
        # Out of sight in one step: a removal that is cut off leaves no half session behind.
        doomed = folder.rename(self.root / f".removed-{session}")
        held.release()
        remove_folder(doomed)
        forget_scratch(session)
        forget_conversations([session])
        self._remove_unused_contents()

    def _remove_unused_contents(self) -> None:
        """Of workspaces in which there is no session any more."""
        from pinfold.sandbox.file_history.shared_contents import LINK, remove_shared_contents

        used: set[Path] = set()
        for link in self.root.glob(f"*/state/files/{LINK}"):
            with contextlib.suppress(FileNotFoundError):  # its session is being removed, too
                used.add(link.resolve())
        for folder in {one.resolve() for one in self._find_contents()} - used:
            remove_shared_contents(folder)

    def _find_contents(self) -> list[Path]:
        return [*(self.root.parent / "contents").glob("*")]

    def collect(self, *, keep_days: float, quota_bytes: float) -> list[StoredSession]:
        """Remove what is too old, then the oldest until the rest fits. Returns what went.

        Live sessions stay, and so do unreadable ones: whether they can be mended is for a person to say.
        """
        for leftover in self.find_unfinished():
            remove_folder(leftover)
        self._remove_unused_contents()
        oldest_kept = (datetime.now(UTC) - timedelta(days=min(keep_days, _DAYS))).strftime(_TIME)
        everything = self.sessions()
        shared = sum(map(_size, self._find_contents()))
        total = shared + sum(item.size for item in everything)
        gone: list[StoredSession] = []
        for item in reversed(everything):
            if item.owner is None and item.readable and (item.summary.last < oldest_kept or total > quota_bytes):
                with contextlib.suppress(SessionBusy):
                    self.remove(item.id)
                    was, shared = shared, sum(map(_size, self._find_contents()))
                    total -= item.size + was - shared
                    gone.append(item)
        return gone

    def find_unfinished(self) -> list[Path]:
        """What is left of removals and imports that were cut off."""
        found = list(self.root.glob(".removed-*"))
        for folder in self.root.glob(".importing-*"):
            if held := claim(folder):
                found.append(folder)
                held.release()
        return sorted(found)

    def import_session(self, source: Path) -> tuple[SessionId, int]:
        """Import a bundle or JSON lines as a session of its own: all of it or nothing."""
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
        """A folder for a session that comes as a whole: to be renamed to its place, or nothing is left of it."""
        # Under a name that `collect` sweeps once we are gone.
        partial = private_dir(self.root / f".importing-{session}")
        held = claim(partial)
        with contextlib.ExitStack() as at_end, contextlib.ExitStack() as on_failure:
            if held:
                at_end.callback(held.release)
            on_failure.callback(remove_folder, partial)
            yield partial
            on_failure.pop_all()


class SessionNode(Summary, frozen=True, kw_only=True):
    """A session as a list shows it."""

    id: SessionId
    is_live: bool = False


class SessionTree(Struct, frozen=True, kw_only=True):
    ancestors: tuple[SessionNode, ...]
    """Where it came from, the nearest first; those that are removed by now only in name."""
    children: tuple[tuple[int, SessionNode], ...]
    """Forked from it, each with how many steps away, children after their parents."""


def list_nodes(shelf: SessionStore) -> list[SessionNode]:
    """Every session that can be read, the last used first."""
    return [
        SessionNode(id=SessionId(folder.name), is_live=holder_of(folder) is not None, **asdict(summary))
        for folder, summary, is_readable in shelf.summaries()
        if is_readable and summary.events
    ]


def build_session_tree(session: SessionId, everyone: list[SessionNode]) -> SessionTree:
    by_id = {kin.id: kin for kin in everyone}
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
    for kin in everyone:
        if kin.source == session and kin.id not in seen:
            seen.add(kin.id)
            yield depth, kin
            yield from _children(kin.id, everyone, depth + 1, seen)


@contextlib.contextmanager
def read_session(folder: Path, session: SessionId) -> Generator[tuple[Log, Damage]]:
    """The log to read from, and the damage that reading it will note."""
    if not (folder / "log.sqlite").is_file():
        raise LogUnreadable(f"{session} holds no log")
    with contextlib.closing(Log(folder, session)) as log:
        yield log, Damage()


def read_entries(folder: Path, session: SessionId, after: int = 0) -> list[Entry]:
    """Raises LogError."""
    with read_session(folder, session) as (log, damage):
        return list(log.read(after, damage))


def label_cells(entries: Sequence[Entry]) -> dict[ActionId, str]:
    """What to call each cell: by its number, and whether it was undone."""
    undone = fold(entries).undone
    started = (entry.event for entry in entries if isinstance(entry.event, ActionStarted))
    return {
        event.id: f"cell {event.cell}{', undone' if event.cell in undone else ''}"
        for event in started
        if event.cell is not None
    }


def list_lasting_effects(folder: Path, session: SessionId, to: int | None) -> tuple[str, ...]:
    """What going back to the state after cell `to`, or before the last one, will not undo."""
    state = fold(read_entries(folder, session))
    path = state.path
    return state.effects_of(path[-1:] if to is None else tuple(cell for cell in path if cell > to))


def list_folder(workspace: Path) -> list[str]:
    """What lies at the top of a folder, folders first, fit to print; the first of it, where there is much."""
    try:
        with os.scandir(workspace) as inside:
            entries = sorted((not entry.is_dir(follow_symlinks=False), entry.name) for entry in inside)
    except OSError as error:
        return [f"  it cannot be read: {error.strerror}"]
    names = [f"  {presentable_line(name)}{'' if is_file else '/'}" for is_file, name in entries[:_LISTED]]
    if len(entries) > _LISTED:
        names.append(f"  and {len(entries) - _LISTED:,} more")
    return names or ["  (empty)"]


_SOCKET = "socket"


def clean_up(*, dry_run: bool) -> Iterator[tuple[str, str]]:
    """The kind and the name of each thing that was ended or removed, or would be. What anyone alive uses stays."""
    from pinfold.sandbox.kernel.processes import sweep_leftovers

    yield from sweep_leftovers(dry_run=dry_run)
    for kind, path in _find_leftovers(SessionStore()):
        if not dry_run:
            if kind == _SOCKET:
                path.unlink(missing_ok=True)
            else:
                remove_folder(path)
        yield kind, str(path)


def _find_leftovers(shelf: SessionStore) -> Iterator[tuple[str, Path]]:
    sockets = [*shelf.root.glob("s_*/owner.sock"), *up_dir().glob("*.sock"), *warm_dir().glob("*.sock")]
    for socket in sorted(sockets):
        if holder_of(socket.parent) is None:
            yield _SOCKET, socket
    for folder in shelf.find_unfinished():
        yield "unfinished session", folder
    for folder in sorted((cache_dir() / "scratch").glob("s_*")):
        # A kept session's scratch folder is its workspace, and goes with the session.
        if not shelf.folder_of(SessionId(folder.name)).exists() and not in_use(folder):
            yield "scratch folder", folder
    for folder in find_unfinished():
        yield "unfinished environment", folder
