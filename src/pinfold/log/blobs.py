"""Stores bytes under their hash, next to the log. A blob is written once and synced before an event may name it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from pinfold.events import BlobId
from pinfold.log.rows import BlobMissing, LogUnwritable

_PREFIX = "sha256:"
_SHORTEST = 8
"""Fewest digits of a hash with which `find` identifies a blob."""


def blob_id(data: bytes) -> BlobId:
    return BlobId(_PREFIX + hashlib.sha256(data).hexdigest())


class Blobs:
    """The blobs of one session, in `folder`, or in memory if it is None."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: dict[BlobId, bytes] = {}

    def put(self, data: bytes) -> BlobId:
        blob = blob_id(data)
        if self._folder is None:
            self._memory[blob] = data
        elif not (path := self._path(blob)).exists():
            try:
                _write_whole(path, data)
            except OSError as error:
                raise LogUnwritable(f"cannot write {path}: {error.strerror}; free some space") from error
        return blob

    def get(self, blob: BlobId) -> bytes:
        try:
            data = self._memory[blob] if self._folder is None else self._path(blob).read_bytes()
        except (KeyError, OSError) as error:
            raise BlobMissing(f"blob {blob} is not in this session") from error
        if blob_id(data) != blob:
            raise BlobMissing(f"blob {blob} is damaged: its content has another hash")
        return data

    def find(self, beginning: str) -> BlobId | None:
        """Return the blob whose name begins like this; None if there is none or more than one."""
        digest = beginning.removeprefix(_PREFIX)
        if len(digest) < _SHORTEST:
            return None
        found = [blob for blob in self.all() if blob.removeprefix(_PREFIX).startswith(digest)]
        return found[0] if len(found) == 1 else None

    def all(self) -> list[BlobId]:
        if self._folder is None:
            return sorted(self._memory)
        return sorted(BlobId(_PREFIX + path.name) for path in self._folder.glob("*/*") if len(path.name) == 64)

    def _path(self, blob: BlobId) -> Path:
        digest = blob.removeprefix(_PREFIX)
        if len(digest) != 64 or not all(letter in "0123456789abcdef" for letter in digest):
            raise BlobMissing(f"{blob!r} is not the name of a blob")
        assert self._folder is not None
        return self._folder / digest[:2] / digest


def _write_whole(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(partial).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(partial).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
