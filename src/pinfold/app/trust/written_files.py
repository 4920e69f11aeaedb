"""The store of files with outside text (`untrusted.json`, out of reach of sessions), and the search for written files.

A file that cannot be read, or a folder that cannot be listed, counts as written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.errors import ConfigError
from pinfold.app.paths import data_dir, read_private, write_private
from pinfold.events import convert
from pinfold.sandbox.kernel.safe_files import lstat

WHOLE = "*"
"""Digest of a folder that is marked with everything in it."""
_LARGEST = 2 << 20
"""Largest store, in bytes. Since a session chooses names and number of files, beyond this whole folders are marked."""


class Mark(Struct, frozen=True, kw_only=True):
    digest: str
    size: int = 0
    seen: tuple[int, int] = (0, 0)
    """Inode and ctime when it had this digest; while they are the same, the file is not read again."""
    session: str = ""
    at: str = ""


class Writing(Struct, frozen=True, kw_only=True):
    """An untrusted session that may write to these folders."""

    folders: tuple[str, ...]
    since_ns: int
    opened_ns: int = 0
    started: str
    """The session's process, as returned by `processes.stamp`."""


class Store(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    files: dict[str, Mark] = {}
    """Marks by absolute path."""
    folders: dict[str, tuple[int, int]] = {}
    """Device and inode of session folders with marks, to recognise a folder under another name."""
    ways: dict[str, tuple[int, int]] = {}
    """The same for their parent folders, and for folders between them and marked files."""
    writing: dict[str, Writing] = {}


def store_path() -> Path:
    return data_dir() / "untrusted.json"


def load() -> Store:
    """Raises ConfigError."""
    data = read_private(store_path())
    try:
        return Store() if data is None else convert(json.loads(data), Store)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{store_path()} is damaged or was written by a newer Pinfold; it lists files with outside text: "
            "move it away to continue without that list"
        ) from error


def save(store: Store) -> None:
    """Raises ConfigError."""
    store = _drop_needless(store)
    data = _encode_store(store)
    while len(data) > _LARGEST and (coarser := _coarsen(store)) is not None:
        store, data = coarser, _encode_store(coarser)
    write_private(store_path(), data)


def _encode_store(store: Store) -> bytes:
    # File names need not be UTF-8. The standard library's JSON keeps such names; msgspec refuses them.
    return json.dumps(msgspec.to_builtins(store), separators=(",", ":")).encode()


def _drop_needless(store: Store) -> Store:
    """Drop folders that no mark needs any more."""
    needed = {str(one) for path in store.files for one in (Path(path), *Path(path).parents)}
    needed |= {str(one) for path in store.folders.keys() & needed for one in Path(path).parents}
    return replace(
        store,
        folders={path: number for path, number in store.folders.items() if path in needed},
        ways={path: number for path, number in store.ways.items() if path in needed},
    )


def _coarsen(store: Store) -> Store | None:
    """Replace the marks of the folder that take the most room by one mark; None if nothing is left to replace."""
    sizes = {
        top: sum(len(path) for path in (*store.files, *store.ways) if path.startswith(f"{top}/"))
        for top in store.folders
    }
    top = max(sizes, key=lambda one: sizes[one], default="")
    if not sizes.get(top):
        return None
    marks = [mark for path, mark in store.files.items() if path == top or path.startswith(f"{top}/")]
    last = max(marks, key=lambda mark: mark.at, default=Mark(digest=WHOLE))
    files = {path: mark for path, mark in store.files.items() if not path.startswith(f"{top}/")}
    files[top] = replace(last, digest=WHOLE, size=0, seen=(store.folders[top][1], 0))
    ways = {path: number for path, number in store.ways.items() if not path.startswith(f"{top}/")}
    return replace(store, files=files, ways=ways)


MOST = 2_000
"""Maximum files of one session that are marked singly; if there are more, their folders are marked."""
_NAMES = 256 << 10
"""Maximum characters of their paths together."""
_WALKED = 200_000
_HASHED = 256 << 20
"""Largest file, in bytes, that is hashed; a larger one is identified by size and time."""
_KNOWN = 32 << 20
"""Total bytes of files read when a session turns untrusted."""
_GONE = (errno.ENOENT, errno.ENOTDIR)
NAMES = "names "
"""Prefix of a folder's digest, which is made from the names in it."""
UNREAD = "?"
"""In place of a digest: the file could not be read."""
_FOLDER = "folder"
"""In place of a digest: a folder that existed before, whose content does not matter."""
_BYTECODE = "__pycache__"
_GIT = "/.git/"


class Entry(NamedTuple):
    path: str
    status: os.stat_result | None
    """None if an entry below cannot be examined."""
    is_closed: bool = False
    """True for a folder that cannot be listed."""


class TooMany(Exception):
    """There are more files than may be examined."""


def walk(top: Path) -> Iterator[Entry]:
    """Yield everything below a folder, or the file itself. Raises TooMany."""
    status = lstat(str(top))
    if status is None:
        return
    if not stat.S_ISDIR(status.st_mode):
        yield Entry(str(top), status)
        return
    folders = [Entry(str(top), status)]
    count = 0
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder.path) as inside:
                entries = list(inside)
        except OSError as error:
            if error.errno not in _GONE:
                yield folder._replace(is_closed=True)
            continue
        for entry in entries:
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError as error:
                if error.errno not in _GONE:  # such as a path that is too long
                    yield Entry(folder.path, None, is_closed=True)
                continue
            count += 1
            if count > _WALKED:
                raise TooMany
            found = Entry(entry.path, about)
            if stat.S_ISDIR(about.st_mode):
                folders.append(found)
            yield found


def contents_before(since_ns: int, tops: Iterable[Path]) -> dict[str, str]:
    """Return all folders, and digests of files last changed before `since_ns`, as many as the limits allow."""
    known: dict[str, str] = {}
    read, left = 0, _KNOWN
    with suppress(TooMany):
        for path, status, is_closed in (entry for top in tops for entry in walk(top)):
            if status is None or is_closed:
                continue
            if stat.S_ISDIR(status.st_mode):
                known[path] = _FOLDER
            elif (
                status.st_ctime_ns < since_ns
                and read < MOST
                and status.st_size <= left
                and f"{_GIT}objects/" not in path
                and (now := content(path))
                and now.digest != UNREAD
            ):
                known[path] = now.digest
                read, left = read + 1, left - now.size
    return known


def find_written(top: Path, since_ns: int, opened_ns: int, known: Mapping[str, str]) -> dict[str, Mark]:
    """Return marks for all that may have been written since; for folders instead if there are too many.

    Bytecode is deleted instead of marked: Python recreates it, and it runs without being read first.
    """
    found: dict[str, Mark] = {}
    folders: list[str] = []
    try:
        for path, status, is_closed in walk(top):
            is_new = status is None or status.st_ctime_ns >= since_ns
            if status is None or is_closed:
                if status is None or status.st_ctime_ns >= opened_ns:
                    found[path] = Mark(digest=WHOLE, seen=(status.st_ino if status else 0, 0))
            elif stat.S_ISDIR(status.st_mode):
                if is_new and path not in known:
                    folders.append(path)
            # A write through a memory mapping may leave the ctime unchanged, so known contents are compared.
            elif (is_new or path in known) and (mark := content(path)) and known.get(path) != mark.digest:
                found |= _marks(path, mark)
    except TooMany:
        return {str(top): _whole(str(top))}
    _add_names(found, folders)
    if not _are_few(found):
        firsts = {str(top / Path(path).relative_to(top).parts[0]) if path != str(top) else path for path in found}
        found = {path: found.get(path) or _whole(path) for path in firsts}
    return found if _are_few(found) else {str(top): _whole(str(top))}


def content(path: str) -> Mark | None:
    """Return the mark that identifies the content; None if nothing is there."""
    try:
        status = os.lstat(path)
        seen = (status.st_ino, status.st_ctime_ns)
        return Mark(digest=_digest(path, status), size=status.st_size, seen=seen)
    except OSError as error:
        return None if error.errno in _GONE else Mark(digest=UNREAD)


def _digest(path: str, status: os.stat_result) -> str:
    """Raises OSError."""
    if stat.S_ISLNK(status.st_mode):
        return f"link {hashlib.sha256(os.fsencode(Path(path).readlink())).hexdigest()}"
    if stat.S_ISDIR(status.st_mode):
        names = sorted(os.fsencode(one.name) for one in Path(path).iterdir())
        return f"{NAMES}{hashlib.sha256(b'/'.join(names)).hexdigest()}"
    if not stat.S_ISREG(status.st_mode):
        return "name"
    if status.st_size > _HASHED:
        return f"{status.st_size}-{status.st_mtime_ns}"
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _whole(path: str) -> Mark:
    status = lstat(path)
    return Mark(digest=WHOLE, seen=(status.st_ino if status else 0, 0))


def _are_few(found: Mapping[str, Mark]) -> bool:
    return len(found) <= MOST and sum(map(len, found)) <= _NAMES


def _add_names(found: dict[str, Mark], folders: Iterable[str]) -> None:
    """Mark new folders, whose names may hold outside text, unless something in them is marked."""
    around = {str(parent) for path in found for parent in Path(path).parents}
    for path in sorted(folders, key=len, reverse=True):
        is_plain = path.endswith(f"/{_BYTECODE}") or _GIT in path
        if path not in around and path not in found and not is_plain and (mark := content(path)):
            found[path] = mark
            around |= {str(parent) for parent in Path(path).parents}


# Files that git and Python write by themselves.


def _marks(path: str, mark: Mark) -> dict[str, Mark]:
    is_bytecode = path.endswith(".pyc") and path.split("/")[-2:-1] == [_BYTECODE]
    if _is_index(path) or (is_bytecode and _remove(path)):
        return {}
    # One mark covers a repository's commits, branches and messages, which are read together.
    folder, within, _ = path.partition(_GIT)
    return {f"{folder}/.git": _whole(f"{folder}/.git")} if within else {path: mark}


def _is_index(path: str) -> bool:
    """True for git's index, which git rewrites whenever it examines files."""
    if _GIT not in path or not path.endswith("/index"):
        return False
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(4) == b"DIRC"
    except OSError:
        return False


def _remove(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError:
        return False
    return True
