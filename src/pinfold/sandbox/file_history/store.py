"""Contents by their hash, in a folder of our own. Bounded; says when there is no room, and drops what it is told nobody needs."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from threading import Lock

from pinfold.sandbox.file_history.sparse_files import CHUNK, count_written, pieces

_FICLONE = 0x40049409


class NoRoom(Exception):
    """The store is full, or its disk."""


class TooLarge(Exception):
    """More than one file may have."""


class Damaged(OSError):
    """A content is missing, or is not what its name says."""


class Store:
    """Used by two threads at once: one takes contents in at the start, another around cells."""

    def __init__(self, folder: Path, *, total: int, largest: int) -> None:
        self._folder = folder
        self._total = total
        self._largest = largest
        self._sizes: dict[str, int] = {}
        self._used = 0
        self._lock = Lock()
        self._clones = True
        """Until the file system says that it cannot share blocks."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for blob in folder.glob("??/*"):  # of an earlier owner
            status = blob.stat()
            self._sizes[blob.name] = min(status.st_size, status.st_blocks * 512)
        self._used = sum(self._sizes.values())
        for partial in folder.glob("partial-*"):
            partial.unlink()

    @property
    def used(self) -> int:
        return self._used

    def has(self, digest: str) -> bool:
        return digest in self._sizes

    def has_room(self, size: int, *, share: float = 1.0) -> bool:
        return self._used + size <= self._total * share

    def path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def take(self, fd: int, *, share: float = 1.0) -> str:
        """The content of an open file, by its hash. Uses no more than this share of the store. Raises NoRoom and TooLarge."""
        size = os.fstat(fd).st_size
        if size > self._largest:
            raise TooLarge
        if not self.has_room(count_written(fd), share=share):
            digest = _hash(fd)
            if digest not in self._sizes:
                raise NoRoom
            return digest
        try:
            if size < CHUNK:
                data = os.pread(fd, size + 1, 0)
                if len(data) <= size:
                    return self._put(data)
            return self._stream(fd)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoRoom from error
            raise

    def copy(self, digest: str, fd: int) -> None:
        """Into an empty file. Raises Damaged."""
        found = hashlib.sha256()
        try:
            with self.path(digest).open("rb", buffering=0) as blob:
                cloned = self._try_clone(blob.fileno(), fd)
                for at, piece, is_written in pieces(blob.fileno()):
                    found.update(piece)
                    if is_written and not cloned:
                        _write(fd, piece, at)
                if not cloned:
                    os.ftruncate(fd, os.fstat(blob.fileno()).st_size)
        except FileNotFoundError as error:
            raise Damaged(error.errno, "its content is no longer kept") from error
        if found.hexdigest() != digest:
            raise Damaged(0, "its content was damaged in the store")

    def drop(self, needed: AbstractSet[str]) -> None:
        with self._lock:
            for digest in self._sizes.keys() - needed:
                with suppress(OSError):
                    self.path(digest).unlink()
                self._used -= self._sizes.pop(digest)

    def _put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._sizes:
            partial, fd = self._partial()
            try:
                _write(fd, data, 0)
            except OSError:
                partial.unlink()
                raise
            finally:
                os.close(fd)
            self._keep(partial, digest, len(data))
        return digest

    def _stream(self, source: int) -> str:
        """What is hashed is what was written, whatever happens to the file meanwhile."""
        partial, fd = self._partial()
        found, size, held = hashlib.sha256(), 0, 0
        try:
            cloned = self._try_clone(source, fd)
            for at, piece, is_written in pieces(fd if cloned else source):
                found.update(piece)
                size = at + len(piece)
                if size > self._largest:
                    break
                if is_written and not cloned:
                    _write(fd, piece, at)
            if not cloned:
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

    def _partial(self) -> tuple[Path, int]:
        path = self._folder / f"partial-{secrets.token_hex(8)}"
        return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _keep(self, partial: Path, digest: str, size: int) -> None:
        path = self.path(digest)
        with self._lock:
            if digest in self._sizes:
                partial.unlink()
                return
            path.parent.mkdir(mode=0o700, exist_ok=True)
            partial.replace(path)
            self._sizes[digest] = size
            self._used += size

    def _try_clone(self, source: int, target: int) -> bool:
        if self._clones:
            try:
                fcntl.ioctl(target, _FICLONE, source)
                return True
            except OSError:
                self._clones = False
        return False


def _hash(fd: int) -> str:
    found = hashlib.sha256()
    for _, piece, _ in pieces(fd):
        found.update(piece)
    return found.hexdigest()


def _write(fd: int, data: bytes | memoryview, at: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, at)
        left, at = left[written:], at + written
