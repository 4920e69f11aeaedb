"""File contents stored by their hash in a private folder of bounded size."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

from pinfold.sandbox.file_history.entries import File, Uncovered, Why, mode_of, owner_of
from pinfold.sandbox.guards.contents import is_fresh
from pinfold.sandbox.kernel.safe_files import Stamp, is_open_for_writing

CHUNK = 1 << 20
SMALL = 1 << 16
"""Largest file, in bytes, that is read and written in one step."""
_ZEROS = bytes(CHUNK)


def pieces(fd: int) -> Iterator[tuple[int, bytes | memoryview, bool]]:
    """Yield an open file in pieces: the offset, the bytes, and False if they are a hole. Moves the file offset."""
    size, at = os.fstat(fd).st_size, 0
    while at < size:
        begin, end = _data(fd, at, size)
        while at < begin:
            zeros = memoryview(_ZEROS)[: begin - at]
            yield at, zeros, False
            at += len(zeros)
        while at < end:
            chunk = os.pread(fd, min(CHUNK, end - at), at)
            if not chunk:
                return  # the file was truncated meanwhile
            yield at, chunk, True
            at += len(chunk)


def count_written(fd: int) -> int:
    """Return the bytes of an open file outside its holes. Moves the file offset.

    Does not use the block count, which some file systems update late.
    """
    size, at, found = os.fstat(fd).st_size, 0, 0
    while at < size:
        begin, at = _data(fd, at, size)
        found += at - begin
    return found


def same_content(one: int, other: int) -> bool:
    """Return True if two open files hold the same bytes. Moves their file offsets."""
    size, at = os.fstat(one).st_size, 0
    if os.fstat(other).st_size != size:
        return False
    while at < size:
        at = min(_data(one, at, size)[0], _data(other, at, size)[0])
        chunk = os.pread(one, CHUNK, at)
        if chunk != os.pread(other, CHUNK, at):
            return False
        if not chunk:
            break
        at += len(chunk)
    return True


def _data(fd: int, at: int, size: int) -> tuple[int, int]:
    """Return where the next data from offset `at` begins and ends."""
    try:
        begin = os.lseek(fd, at, os.SEEK_DATA)
        return begin, os.lseek(fd, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size, size
        return at, size  # this file system does not report holes


_FICLONE = 0x40049409


class NoRoom(Exception):
    """The store or its disk is full."""


class TooLarge(Exception):
    """The file is larger than the store allows."""


class Damaged(OSError):
    """The content is missing or does not match its digest."""


class ContentSource(Protocol):
    """A source of contents that a store does not have. Its methods mean the same as those of `Store`."""

    def has(self, digest: str) -> bool: ...
    def read(self, digest: str) -> bytes: ...
    def copy(self, digest: str, fd: int) -> None: ...


class Store:
    """Safe for two threads at once: one stores the contents of the start, the other those changed by cells."""

    def __init__(self, folder: Path, *, total: int, largest: int) -> None:
        self.folder = folder
        self.source: ContentSource | None = None
        self._total = total
        self._largest = largest
        self._sizes: dict[str, int] = {}
        self._used = 0
        self._lock = Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for blob in folder.glob("??/*"):  # left by an earlier owner
            status = blob.stat()
            self._sizes[blob.name] = min(status.st_size, status.st_blocks * 512)
        self._used = sum(self._sizes.values())

    def remove_partials(self) -> None:
        """Remove unfinished files of an owner that was killed."""
        for partial in self.folder.glob("partial-*"):
            partial.unlink()

    @property
    def used(self) -> int:
        """The bytes in use."""
        return self._used

    def has(self, digest: str) -> bool:
        if digest in self._sizes:
            return True
        return self.source.has(digest) if self.source else self.path(digest).exists()

    def size(self, digest: str) -> int | None:
        """Return the size of a stored content; None if it is not here."""
        with suppress(FileNotFoundError):
            return self.path(digest).stat().st_size
        return None

    def has_room(self, size: int, *, share: float = 1.0) -> bool:
        return self._used + size <= self._total * share

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def take(self, fd: int, *, share: float = 1.0) -> str:
        """Store the content of an open file and return its digest. Raises NoRoom and TooLarge.

        Raises NoRoom too where more than this share of the store would be in use.
        """
        if os.fstat(fd).st_size > self._largest:
            raise TooLarge
        if not self.has_room(count_written(fd), share=share):
            found = hashlib.sha256()
            for _, piece, _ in pieces(fd):
                found.update(piece)
            if found.hexdigest() not in self._sizes:
                raise NoRoom
            return found.hexdigest()
        try:
            return self._find_small(fd) or self._stream(fd)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoRoom from error
            raise

    def _find_small(self, source: int) -> str | None:
        """Return the digest of a small file whose content is already stored, which is often so; else None."""
        data = read_small(source)
        digest = hashlib.sha256(data).hexdigest() if data is not None else ""
        return digest if digest in self._sizes else None

    def copy(self, digest: str, fd: int) -> None:
        """Write a content into an empty file. Raises Damaged."""
        if self.source and digest not in self._sizes:
            self.source.copy(digest, fd)
            return
        found = hashlib.sha256()
        try:
            with self.path(digest).open("rb", buffering=0) as blob:
                is_clone = _try_clone(blob.fileno(), fd)
                for at, piece, is_written in pieces(blob.fileno()):
                    found.update(piece)
                    if is_written and not is_clone:
                        write_at(fd, piece, at)
                os.ftruncate(fd, os.fstat(blob.fileno()).st_size)
        except FileNotFoundError as error:
            raise Damaged(error.errno, "its content is no longer kept") from error
        if found.hexdigest() != digest:
            raise Damaged(0, "its content was damaged in the store")

    def read(self, digest: str) -> bytes:
        """Return a content. Raises OSError if it is missing."""
        if self.source and digest not in self._sizes:
            return self.source.read(digest)
        return self.path(digest).read_bytes()

    def holds(self, digest: str) -> bool:
        """Return True if the store itself has the content, not just its source."""
        return digest in self._sizes

    def drop(self, needed: AbstractSet[str]) -> None:
        with self._lock:
            for digest in self._sizes.keys() - needed:
                with suppress(OSError):
                    self.path(digest).unlink()
                self._used -= self._sizes.pop(digest)

    def _stream(self, source: int) -> str:
        """Store a file while hashing it: the digest is that of the stored bytes even if the file changes meanwhile."""
        partial = self.folder / f"partial-{secrets.token_hex(8)}"
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        found, size, held = hashlib.sha256(), 0, 0
        try:
            is_clone = _try_clone(source, fd)
            for at, piece, is_written in pieces(fd if is_clone else source):
                found.update(piece)
                size = at + len(piece)
                if size > self._largest:
                    break
                if is_written and not is_clone:
                    write_at(fd, piece, at)
            os.ftruncate(fd, size)
            held = count_written(fd)
        except OSError:
            partial.unlink()
            raise
        finally:
            os.close(fd)
        if size > self._largest:
            partial.unlink()
            raise TooLarge
        self._keep(partial, found.hexdigest(), held)
        return found.hexdigest()

    def _keep(self, partial: Path, digest: str, size: int) -> None:
        path = self.path(digest)
        with self._lock:
            try:
                partial.replace(path)
            except FileNotFoundError:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                partial.replace(path)
            self._used += size - self._sizes.get(digest, 0)
            self._sizes[digest] = size


def read_small(fd: int) -> bytes | None:
    """Return the content of an open file; None if it is not small or has holes."""
    status = os.fstat(fd)
    if status.st_size > SMALL or status.st_blocks * 512 < status.st_size:
        return None
    data = os.pread(fd, SMALL + 1, 0)
    return data if len(data) <= SMALL else None


def _try_clone(source: int, target: int) -> bool:
    """Let the target share the source's blocks, if the file system can (btrfs, XFS). False if it cannot."""
    with suppress(OSError):
        fcntl.ioctl(target, _FICLONE, source)
        return True
    return False


def write_at(fd: int, data: bytes | memoryview, at: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, at)
        left, at = left[written:], at + written


_TRIES = 3
"""How often to read a file that changes while it is read."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    entry: File | Uncovered
    stamp: Stamp
    is_fresh: bool
    """The file changed so shortly before that the next change could leave the same time."""
    is_held: bool
    """Some process has the file open for writing."""


def read_file(fd: int, take: Callable[[int], str]) -> ReadResult:
    is_held = is_open_for_writing(fd)
    if is_held:
        # A memory map can write to a page that is already dirty without a trace, but not to a clean one.
        with suppress(OSError):  # not every file system supports this
            os.fdatasync(fd)
    stamp = Stamp.of(os.fstat(fd))
    for _ in range(_TRIES):
        fresh = is_fresh(stamp.ctime_ns)
        try:
            digest = take(fd)
        except (NoRoom, TooLarge, OSError) as error:
            return ReadResult(Uncovered(reason(error), stamp.thing), stamp, fresh, is_held)
        status = os.fstat(fd)
        if Stamp.of(status) == stamp:
            # Checked again: no event reports that another process opened the file while this one had it open.
            return ReadResult(file_of(digest, status), stamp, fresh, is_held or is_open_for_writing(fd))
        stamp = Stamp.of(status)
    return ReadResult(Uncovered("changed while it was read", stamp.thing), stamp, is_fresh=True, is_held=is_held)


def file_of(digest: str | None, status: os.stat_result) -> File:
    return File(digest, status.st_size, mode_of(status), owner_of(status), status.st_mtime_ns)


def reason(error: Exception) -> Why:
    match error:
        case NoRoom():
            return "no room"
        case TooLarge():
            return "too large"
        case OSError(errno=errno.EXDEV):
            return "another file system"
        case OSError(errno=errno.E2BIG):
            return "too many files"
        case _:
            return "unreadable"
