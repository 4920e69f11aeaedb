"""Files written after a session had read outside text, by path and content. A session that opens one is untrusted too.

The store is out of reach of sessions. A session that turns untrusted is recorded before it can write. What it wrote is
found when it ends, or by the next session if it never ended. A file that the user changed since is not marked any more.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from pinfold.app.paths import hold_file_lock
from pinfold.app.trust.written_files import (
    NAMES,
    UNREAD,
    WHOLE,
    Mark,
    Store,
    TooMany,
    Writing,
    content,
    contents_before,
    find_written,
    load,
    save,
    store_path,
    walk,
)
from pinfold.sandbox.kernel.processes import lives, stamp
from pinfold.sandbox.kernel.safe_files import lstat
from pinfold.text import join_names, pluralize, printable_line

_COARSE = 5
"""CLOCK_REALTIME_COARSE, the clock Linux uses for file times; it lags the real-time clock by up to a tick."""
_COARSE_NS = 20_000_000
"""Maximum lag of file times on other systems."""
_NAMED = 3


class Writer:
    """Tracks the files with outside text that one session can read or writes."""

    def __init__(self, session: str, folders: Sequence[Path], places: Sequence[Path] = ()) -> None:
        """The session may write to `folders` and also read `places`."""
        self._session = session
        self._folders = tuple(folders)
        self._places = (*folders, *places)
        self._opened_ns = self._began_ns = _now_ns()
        self._known: dict[str, str] = {}
        """Earlier contents, so that a file that an undo restored to them is not marked."""
        self._writing: Writing | None = None
        self._looked_at: tuple[int, int] | None = None
        """Inode and ctime of the store when it was last read."""
        self._has_met_any = self._has_company = False
        """`_has_company`: another untrusted session was recorded that may write what this one reads."""

    @property
    def has_news(self) -> bool:
        """True if outside text may have come into its folders since the last look. Cheap."""
        if self._writing or self._has_met_any:
            return False
        return self._has_company or _read_stamp(str(store_path())) != self._looked_at

    def find_marked(self) -> dict[Path, Mark]:
        """Return the marked files in its folders. Raises ConfigError."""
        self._looked_at = _read_stamp(str(store_path()))
        if self._looked_at is None:
            return {}
        found = find_untrusted(self._places)
        self._has_met_any = bool(found)
        others = (one for name, one in load().writing.items() if name != self._session)
        tops = [place.resolve() for place in self._places]
        self._has_company = any(_writes_near(one, tops) for one in others)
        return found

    def begin_action(self) -> None:
        """Note the start of an action, which may read outside text and write it to a file before it ends."""
        self._began_ns = _now_ns()

    def turn_untrusted(self) -> None:
        """Record on disk that the session is untrusted and may write. Raises ConfigError."""
        if self._writing or not self._folders:
            return
        writing = Writing(
            folders=tuple(map(str, self._folders)),
            since_ns=self._began_ns,
            opened_ns=self._opened_ns,
            started=stamp(os.getpid()),
        )
        with hold_file_lock(store_path()):
            store = load()
            save(replace(store, writing={**store.writing, self._session: writing}))
        self._writing = writing

        self._known = contents_before(self._began_ns, self._folders)

    def end(self) -> None:
        """Mark what the session wrote. Call once none of its code runs any more. Raises ConfigError."""
        if self._writing is None:
            return
        with hold_file_lock(store_path()):
            store = _mark_written(load(), {self._session: self._writing}, self._known)
            rest = {name: one for name, one in store.writing.items() if name != self._session}
            save(replace(store, writing=rest))


def find_untrusted(places: Iterable[Path]) -> dict[Path, Mark]:
    """Return marked files, still with the marked content, at or below these places. Raises ConfigError."""
    if not store_path().exists():
        return {}
    tops = [place.resolve() for place in places]
    with hold_file_lock(store_path()):
        before = store = load()
        store = _follow_renames(store, tops)
        tops += _find_aliases(store, tops)
        near = {name: one for name, one in store.writing.items() if _writes_near(one, tops)}
        store = _mark_written(store, near)
        dead = {name for name, one in near.items() if not _is_alive(one)}
        rest = {name: one for name, one in store.writing.items() if name not in dead}
        store = _drop_stale_marks(replace(store, writing=rest), tops)
        if store != before:
            save(store)
    return {
        Path(path): mark
        for path, mark in store.files.items()
        if _is_in(path, tops) or (mark.digest == WHOLE and any(top.is_relative_to(path) for top in tops))
    }


def clean(paths: Iterable[Path]) -> int:
    """Remove all marks at or below these paths, which the user has read. Return how many. Raises ConfigError."""
    tops = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 - a link is meant as it is
    tops += [top.resolve() for top in tops]
    with hold_file_lock(store_path()):
        store = load()
        tops += _find_aliases(store, tops)
        gone = {path for path in store.files if _is_in(path, tops)}
        if gone:
            save(replace(store, files={path: mark for path, mark in store.files.items() if path not in gone}))
    return len(gone)


@contextmanager
def mark_host_write(session: str, path: Path) -> Generator[None]:
    """Mark the file that the host writes in the block, for an untrusted session. Raises ConfigError."""
    # Under a separate name, because the session itself may still be writing elsewhere.
    writer = Writer(f"{session}, exported", [Path(os.path.abspath(path))])  # noqa: PTH100 - a link is meant as it is
    writer.turn_untrusted()
    yield
    writer.end()


def notice(found: Mapping[Path, Mark], workspace: Path) -> str:
    names = [os.path.relpath(path, workspace) for path in sorted(found)]
    return (
        f"{pluralize('file', len(names))} here may hold outside text ({printable_line(join_names(names, _NAMED))}): "
        "a session that had read some wrote there. So this session counts as having read outside text; "
        f"once you have checked the files: pinfold trust {workspace} --clean FILE, or --clean-all"
    )


def _mark_written(store: Store, sessions: Mapping[str, Writing], known: Mapping[str, str] | None = None) -> Store:
    """Add a mark for each file these sessions may have written; `known` are contents from before."""
    files, folders, ways = dict(store.files), dict(store.folders), dict(store.ways)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for session, writing in sessions.items():
        for top in map(Path, writing.folders):
            found = find_written(top, writing.since_ns, writing.opened_ns, known or {})
            for path, mark in found.items():
                before = files.get(path)
                if before is None or before.digest != mark.digest:
                    files[path] = replace(mark, session=session, at=at)
            if found and (number := _read_inode(str(top))):
                folders[str(top)] = number
                around = {parent for path in (str(top), *found) for parent in Path(path).parents}
                ways |= {str(one): there for one in around - {Path("/")} if (there := _read_inode(str(one)))}
    return replace(store, files=files, folders=folders, ways=ways)


def _drop_stale_marks(store: Store, tops: Sequence[Path]) -> Store:
    """Drop marks in these places whose files are gone or changed. The mark of a moved file moves along."""
    files = dict(store.files)
    missing: list[Mark] = []
    for path, mark in store.files.items():
        if not _is_in(path, tops) or _read_stamp(path) == mark.seen:
            continue
        now = _refresh_mark(path, mark)
        if now is not None:
            files[path] = now
            continue
        del files[path]
        if _read_stamp(path) is None:
            missing.append(mark)
    for path, mark in _find_moved(missing, tops) if missing else ():
        files.setdefault(path, mark)
    return replace(store, files=files)


def _refresh_mark(path: str, mark: Mark) -> Mark | None:
    """Return the mark, updated, if the path still has the marked content."""
    now = content(path)
    if now is None:
        return None
    if now.digest == UNREAD:
        return mark  # unreadable: keep the mark
    if mark.digest == WHOLE:
        return replace(mark, seen=(now.seen[0], 0)) if now.digest.startswith(NAMES) else None
    if mark.digest in (now.digest, UNREAD):
        return replace(mark, digest=now.digest, size=now.size, seen=now.seen)
    return None


def _find_moved(missing: Iterable[Mark], tops: Iterable[Path]) -> Iterator[tuple[str, Mark]]:
    """Yield moved files, found by size and digest, and moved folders, found by inode."""
    files = {(mark.size, mark.digest): mark for mark in missing}
    folders = {mark.seen[0]: mark for mark in missing if mark.digest == WHOLE}
    sizes = {size for size, _ in files}
    with suppress(TooMany):
        for path, status, _ in (entry for top in tops for entry in walk(top)):
            if status is None:
                continue
            if stat.S_ISDIR(status.st_mode) and (mark := folders.get(status.st_ino)):
                yield path, mark
            elif status.st_size in sizes:
                now = content(path)
                if now and (mark := files.get((now.size, now.digest))):
                    yield path, replace(mark, seen=now.seen)


def _follow_renames(store: Store, tops: Iterable[Path]) -> Store:
    """Move the marks of folders that were renamed."""
    for top in tops:
        number = _read_inode(str(top))
        for old, known in {**store.ways, **store.folders}.items():
            if number == known and old != str(top) and _read_inode(old) != known:
                store = replace(
                    store,
                    files={_rebase_path(path, old, top): mark for path, mark in store.files.items()},
                    folders={_rebase_path(path, old, top): it for path, it in store.folders.items()},
                    ways={_rebase_path(path, old, top): it for path, it in store.ways.items()},
                )
                break
    return store


def _rebase_path(path: str, old: str, new: Path) -> str:
    return f"{new}{path[len(old) :]}" if _is_in(path, [Path(old)]) else path


def _find_aliases(store: Store, tops: Iterable[Path]) -> list[Path]:
    """Return other paths to the same folders, such as bind mounts."""
    numbers = {number: top for top in tops if (number := _read_inode(str(top)))}
    return [
        Path(path)
        for path, number in {**store.ways, **store.folders}.items()
        if number in numbers and Path(path) != numbers[number] and _read_inode(path) == number
    ]


def _read_inode(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        status = Path(path).stat()
        return status.st_dev, status.st_ino
    return None


def _read_stamp(path: str) -> tuple[int, int] | None:
    status = lstat(path)
    return (status.st_ino, status.st_ctime_ns) if status else None


def _is_in(path: str, tops: Iterable[Path]) -> bool:
    return any(path == str(top) or path.startswith(f"{top}/") for top in tops)


def _writes_near(writing: Writing, tops: Sequence[Path]) -> bool:
    folders = map(Path, writing.folders)
    return any(folder.is_relative_to(top) or top.is_relative_to(folder) for folder in folders for top in tops)


def _now_ns() -> int:
    """Return a time not later than the ctime of any file changed from now on."""
    return time.clock_gettime_ns(_COARSE) if sys.platform == "linux" else time.time_ns() - _COARSE_NS


def _is_alive(writing: Writing) -> bool:
    return not writing.started.endswith("-0") and lives(writing.started)  # "-0": recorded without /proc
