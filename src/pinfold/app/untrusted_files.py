"""Files that were written while others' words were in play, by path and content: whoever opens them next is untrusted too.

Kept where no session can be pointed. A session that turns untrusted says so before it can write; what it has written
since is found when it ends, or, if it never did, by whoever looks next. A file that the user has changed is the user's.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import data_dir
from pinfold.app.private_files import changing, read_private, write_private
from pinfold.text import listed, numerous, printable_line

MOST = 2_000
"""Files of one session that are marked one by one; of more, the folders they are in."""
_WALKED = 200_000
_HASHED = 256 << 20
"""Bytes; a larger file is known by its size and times."""
_KNOWN = 32 << 20
"""Bytes of files that are read when a session turns untrusted."""
_COARSE = 5
"""CLOCK_REALTIME_COARSE, by which Linux sets the times of files: it is behind the clock by up to a tick."""
_COARSE_NS = 20_000_000
"""How far they are behind it elsewhere, at most."""
_WHOLE = "*"
"""In place of a digest: a folder, whatever is in it."""
_GITS_OWN = frozenset(
    {"objects", "refs", "logs", "index", "HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "packed-refs"}
)
"""What git writes by itself, in a `.git`; as bytecode, it is told from nothing else that a session wrote there."""
_NAMED = 3


class Mark(Struct, frozen=True, kw_only=True):
    digest: str
    size: int = 0
    seen: tuple[int, int] = (0, 0)
    """Number and time of change when it had that digest: as long as both are so, it is not read again."""
    session: str = ""
    at: str = ""


class _Writing(Struct, frozen=True, kw_only=True):
    """A session that is untrusted and may write to these folders."""

    folders: tuple[str, ...]
    since_ns: int
    pid: int
    started: str


class _Store(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    files: dict[str, Mark] = {}
    """By whole path."""
    folders: dict[str, tuple[int, int]] = {}
    """Where there are any: device and number, by which a folder is known under another name."""
    writing: dict[str, _Writing] = {}


class Writer:
    """One session, as far as the files it may write to are concerned."""

    def __init__(self, session: str, folders: Sequence[Path]) -> None:
        self._session = session
        self._folders = tuple(folders)
        self._began_ns = 0
        self._known: dict[str, str] = {}
        """Contents from before: a file that an undo has brought back to them is as it was."""
        self._writing: _Writing | None = None

    def acts(self) -> None:
        """What it does next may bring in others' words and write them down before it ends."""
        self._began_ns = _now_ns()

    def turn_untrusted(self) -> None:
        """On disk before this returns. Raises ConfigError."""
        if self._writing or not self._folders:
            return
        since_ns = self._began_ns or _now_ns()
        writing = _Writing(
            folders=tuple(map(str, self._folders)),
            since_ns=since_ns,
            pid=os.getpid(),
            started=_started(os.getpid()),
        )
        with changing(_path()):
            store = _read()
            _write(msgspec.structs.replace(store, writing={**store.writing, self._session: writing}))
        self._writing = writing
        self._known = _contents_before(since_ns, self._folders)

    def end(self) -> None:
        """Nothing of it runs any more. Raises ConfigError."""
        if self._writing is None:
            return
        with changing(_path()):
            store = _settled(_read(), {self._session: self._writing}, self._known)
            rest = {name: one for name, one in store.writing.items() if name != self._session}
            _write(msgspec.structs.replace(store, writing=rest))


def is_any_marked() -> bool:
    """In any folder, perhaps: quick to ask before looking."""
    return _path().exists()


def untrusted_in(places: Iterable[Path]) -> dict[Path, Mark]:
    """Those that are still as they were marked, at or below any of these places. Raises ConfigError."""
    if not is_any_marked():
        return {}
    tops = [place.resolve() for place in places]
    with changing(_path()):
        before = store = _read()
        store = _renamed(store, tops)
        near = {
            name: one
            for name, one in store.writing.items()
            if any(_meets(Path(folder), tops) for folder in one.folders)
        }
        store = _settled(store, near)
        dead = {name for name, one in near.items() if not _lives(one)}
        rest = {name: one for name, one in store.writing.items() if name not in dead}
        store = _looked_at(msgspec.structs.replace(store, writing=rest), tops)
        if store != before:
            _write(store)
    return {Path(path): mark for path, mark in store.files.items() if _is_in(path, tops)}


def clean(paths: Iterable[Path]) -> int:
    """The user has read them: whatever is marked at or below these paths no longer is. How many. Raises ConfigError."""
    tops = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 - a link is meant as it is
    with changing(_path()):
        store = _read()
        gone = {path for path in store.files if _is_in(path, [*tops, *(top.resolve() for top in tops)])}
        if gone:
            files = {path: mark for path, mark in store.files.items() if path not in gone}
            _write(msgspec.structs.replace(store, files=files))
    return len(gone)


def notice(found: Mapping[Path, Mark], workspace: Path) -> str:
    names = [os.path.relpath(path, workspace) for path in sorted(found)]
    return (
        f"{numerous('file', len(names))} here {'was' if len(names) == 1 else 'were'} written while outside text was in "
        f"play ({printable_line(listed(names, _NAMED))}), so this session counts as having read outside text; "
        f"once you have read them: pinfold trust {workspace} --clean FILE, or --clean-all"
    )


def _settled(
    store: _Store, sessions: Mapping[str, _Writing], known: Mapping[str, str] | None = None
) -> _Store:
    """With a mark on each file these sessions may have written so far; `known` are contents that are not theirs."""
    files, folders = dict(store.files), dict(store.folders)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for session, writing in sessions.items():
        for top in map(Path, writing.folders):
            for path in _written(top, writing.since_ns):
                mark = Mark(digest=_WHOLE) if path.is_dir() else _content(path)
                before = files.get(str(path))
                is_new = mark and (before is None or before.digest != mark.digest)
                if mark and is_new and (known or {}).get(str(path)) != mark.digest:
                    files[str(path)] = msgspec.structs.replace(mark, session=session, at=at)
            if number := _number(str(top)):
                folders[str(top)] = number
    return msgspec.structs.replace(store, files=files, folders=folders)


def _written(top: Path, since_ns: int) -> list[Path]:
    """Files whose content, name or mode is not older than this; where there are too many, folders instead."""
    found: list[Path] = []
    for entry, status in _walk(top):
        if entry is None:
            return [top]
        if stat.S_ISREG(status.st_mode) and status.st_ctime_ns >= since_ns:
            found.append(Path(entry))
    if len(found) > MOST:
        found = [*dict.fromkeys(top / path.relative_to(top).parts[0] for path in found)]
    return found if len(found) <= MOST else [top]


def _contents_before(since_ns: int, tops: Iterable[Path]) -> dict[str, str]:
    """Of files that were last touched before; as many as can be read in passing."""
    known: dict[str, str] = {}
    left = _KNOWN
    for top in tops:
        for entry, status in _walk(top):
            if entry is None or len(known) > MOST or left < 0:
                return known
            is_old = stat.S_ISREG(status.st_mode) and status.st_ctime_ns < since_ns
            if is_old and status.st_size <= left and (now := _content(Path(entry))):
                known[entry] = now.digest
                left -= now.size
    return known


def _walk(top: Path) -> Iterator[tuple[str | None, os.stat_result]]:
    """Everything below, or the file itself; None where there is too much of it."""
    count = 0
    with suppress(OSError):
        status = top.lstat()
        if not stat.S_ISDIR(status.st_mode):
            yield str(top), status
            return
    folders = [str(top)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                count += 1
                if count > _WALKED:
                    yield None, status
                    return
                if _is_by_the_way(entry.path):
                    continue
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)
                else:
                    yield entry.path, status


def _is_by_the_way(path: str) -> bool:
    """It comes of using git or Python, not of writing."""
    folder, _, name = path.rpartition("/")
    within = folder.rpartition("/")[2]
    return (within == ".git" and name in _GITS_OWN) or (within == "__pycache__" and name.endswith(".pyc"))


def _looked_at(store: _Store, tops: Sequence[Path]) -> _Store:
    """Without the marks in these places whose files are gone or others by now; one that only moved takes its mark along."""
    files = dict(store.files)
    missing: dict[tuple[int, str], Mark] = {}
    for path, mark in store.files.items():
        if not _is_in(path, tops) or _seen(path) == mark.seen:
            continue
        now = Mark(digest=_WHOLE) if mark.digest == _WHOLE and Path(path).is_dir() else _content(Path(path))
        if now and now.digest == mark.digest:
            files[path] = msgspec.structs.replace(mark, seen=now.seen)
            continue
        del files[path]
        if now is None:
            missing[mark.size, mark.digest] = mark
    for path, mark in _moved(missing, tops) if missing else ():
        files.setdefault(path, mark)
    return msgspec.structs.replace(store, files=files)


def _moved(missing: Mapping[tuple[int, str], Mark], tops: Iterable[Path]) -> Iterator[tuple[str, Mark]]:
    """Files that hold what those held which are gone, by size and digest."""
    sizes = {size for size, _ in missing}
    for top in tops:
        for entry, status in _walk(top):
            if entry is None:
                break
            if status.st_size in sizes and stat.S_ISREG(status.st_mode):
                now = _content(Path(entry))
                if now and (mark := missing.get((now.size, now.digest))):
                    yield entry, msgspec.structs.replace(mark, seen=now.seen)


def _renamed(store: _Store, tops: Iterable[Path]) -> _Store:
    """A folder that was renamed since takes its marks along."""
    for top in tops:
        with suppress(OSError):
            status = top.stat()
            for old, number in store.folders.items():
                if number == (status.st_dev, status.st_ino) and old != str(top) and _number(old) != number:
                    files = {
                        str(top / Path(path).relative_to(old))
                        if Path(path).is_relative_to(old)
                        else path: mark
                        for path, mark in store.files.items()
                    }
                    folders = {str(top) if path == old else path: it for path, it in store.folders.items()}
                    store = msgspec.structs.replace(store, files=files, folders=folders)
                    break
    return store


def _number(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _seen(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _content(path: Path) -> Mark | None:
    """What it is known by; None for what is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > _HASHED:
            digest = f"{status.st_size}-{status.st_mtime_ns}"
        else:
            with os.fdopen(os.dup(fd), "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Mark(digest=digest, size=status.st_size, seen=(status.st_ino, status.st_ctime_ns))
    except OSError:
        return None
    finally:
        os.close(fd)


def _is_in(path: str, tops: Iterable[Path]) -> bool:
    return any(path == str(top) or path.startswith(f"{top}/") for top in tops)


def _meets(folder: Path, tops: Iterable[Path]) -> bool:
    return any(folder.is_relative_to(top) or top.is_relative_to(folder) for top in tops)


def _now_ns() -> int:
    """No later than the time of a file that is changed from now on."""
    return time.clock_gettime_ns(_COARSE) if sys.platform == "linux" else time.time_ns() - _COARSE_NS


def _lives(writing: _Writing) -> bool:
    return bool(writing.started) and _started(writing.pid) == writing.started


def _started(pid: int) -> str:
    """When a process began: its number alone may be another's by now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def _path() -> Path:
    return data_dir() / "untrusted.json"


def _read() -> _Store:
    data = read_private(_path())
    try:
        return _Store() if data is None else msgspec.json.decode(data, type=_Store)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{_path()} is damaged; it says which files hold others' words: move it away to go on without"
        ) from error


def _write(store: _Store) -> None:
    write_private(_path(), msgspec.json.encode(store))
