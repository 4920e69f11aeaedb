"""Files written after a session had read outside text, by path and content: a session that opens them is untrusted too.

Kept where no session can be pointed. A session that turns untrusted says so before it can write; what it has written
since is found when it ends, or, if it never did, by the next session that looks. A file that the user has changed is the user's.
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
from pinfold.text import join_names, numerous, printable_line

_COARSE = 5
"""CLOCK_REALTIME_COARSE, by which Linux sets the times of files: it is behind the clock by up to a tick."""
_COARSE_NS = 20_000_000
"""How far they are behind it elsewhere, at most."""
_NAMED = 3


class Writer:
    """One session, and the files with outside text that it meets or writes."""

    def __init__(self, session: str, folders: Sequence[Path], places: Sequence[Path] = ()) -> None:
        """`folders` it may write to; `places` it may read as well."""
        self._session = session
        self._folders = tuple(folders)
        self._places = (*folders, *places)
        self._opened_ns = self._began_ns = _now_ns()
        self._known: dict[str, str] = {}
        """Contents from before: a file that an undo has brought back to them is as it was."""
        self._writing: Writing | None = None
        self._looked_at: tuple[int, int] | None = None
        """The store, when it was last looked into."""
        self._has_met_any = self._has_company = False
        """Another session is untrusted by then, and may write what this one reads."""

    @property
    def has_news(self) -> bool:
        """True if outside text may have come into its folders since it looked last. Cheap."""
        if self._writing or self._has_met_any:
            return False
        return self._has_company or _read_stamp(str(store_path())) != self._looked_at

    def find_marked(self) -> dict[Path, Mark]:
        """Files with outside text in its folders. Raises ConfigError."""
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
        """What it does next may read outside text and write it down before it ends."""
        self._began_ns = _now_ns()

    def turn_untrusted(self) -> None:
        """On disk before this returns. Raises ConfigError."""
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
        """Nothing of it runs any more. Raises ConfigError."""
        if self._writing is None:
            return
        with hold_file_lock(store_path()):
            store = _mark_written(load(), {self._session: self._writing}, self._known)
            rest = {name: one for name, one in store.writing.items() if name != self._session}
            save(replace(store, writing=rest))


def find_untrusted(places: Iterable[Path]) -> dict[Path, Mark]:
    """Those that are still as they were marked, at or below any of these places. Raises ConfigError."""
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
    """The user has read them: whatever is marked at or below these paths no longer is. How many. Raises ConfigError."""
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
    """Meanwhile the host writes a file that may hold what an untrusted session has read. Raises ConfigError."""
    # By a name of its own: the session itself may still be writing elsewhere.
    writer = Writer(f"{session}, exported", [Path(os.path.abspath(path))])  # noqa: PTH100 - a link is meant as it is
    writer.turn_untrusted()
    yield
    writer.end()


def notice(found: Mapping[Path, Mark], workspace: Path) -> str:
    names = [os.path.relpath(path, workspace) for path in sorted(found)]
    return (
        f"{numerous('file', len(names))} here {'was' if len(names) == 1 else 'were'} written while outside text was in "
        f"play ({printable_line(join_names(names, _NAMED))}), so this session counts as having read outside text; "
        f"once you have read them: pinfold trust {workspace} --clean FILE, or --clean-all"
    )


def _mark_written(store: Store, sessions: Mapping[str, Writing], known: Mapping[str, str] | None = None) -> Store:
    """With a mark on each file these sessions may have written so far; `known` are contents that are not theirs."""
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
    """Without the marks in these places whose files are gone or others by now; one that only moved takes its mark along."""
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
    """The mark on what is there now, if it is what was marked."""
    now = content(path)
    if now is None:
        return None
    if now.digest == UNREAD:
        return mark  # it cannot be told
    if mark.digest == WHOLE:
        return replace(mark, seen=(now.seen[0], 0)) if now.digest.startswith(NAMES) else None
    if mark.digest in (now.digest, UNREAD):
        return replace(mark, digest=now.digest, size=now.size, seen=now.seen)
    return None


def _find_moved(missing: Iterable[Mark], tops: Iterable[Path]) -> Iterator[tuple[str, Mark]]:
    """Files that hold what those held which are gone, by size and digest; folders by their number."""
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
    """A folder that was renamed since takes its marks along."""
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
    """Other paths to the same folders, as a bind mount gives."""
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
    """No later than the time of a file that is changed from now on."""
    return time.clock_gettime_ns(_COARSE) if sys.platform == "linux" else time.time_ns() - _COARSE_NS


def _is_alive(writing: Writing) -> bool:
    return not writing.started.endswith("-0") and lives(writing.started)  # -0: there is no /proc to tell
