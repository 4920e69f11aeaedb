"""Files with holes: what was never written takes no room on the disk and is not read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

CHUNK = 1 << 20
_ZEROS = bytes(CHUNK)


def pieces(fd: int) -> Iterator[tuple[int, bytes | memoryview, bool]]:
    """All of an open file from its start: where each piece begins, what it holds, and whether that is on the disk.

    Moves the descriptor.
    """
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
                return  # it was cut off meanwhile
            yield at, chunk, True
            at += len(chunk)


def count_written(fd: int) -> int:
    """Bytes of an open file that are no hole. Not by its blocks, which some file systems count late. Moves the descriptor."""
    size, at, found = os.fstat(fd).st_size, 0, 0
    while at < size:
        begin, at = _data(fd, at, size)
        found += at - begin
    return found


def same_content(one: int, other: int) -> bool:
    """Of two open files. Moves the descriptors."""
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
    """Where something was written, from here on."""
    try:
        begin = os.lseek(fd, at, os.SEEK_DATA)
        return begin, os.lseek(fd, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size, size
        return at, size  # this file system does not say
