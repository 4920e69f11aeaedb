"""Private folders, and locks between processes that the kernel releases when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

LOOK_AGAIN_S = 0.1


@asynccontextmanager
async def hold_lock(path: Path, while_waiting: Callable[[], object] = lambda: None) -> AsyncGenerator[int]:
    """One at a time among all processes; gives the lock's descriptor. Waits as long as its holder lives."""
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not try_lock(held, fcntl.LOCK_EX):
            while_waiting()
            await anyio.sleep(LOOK_AGAIN_S)
        yield held
    finally:
        os.close(held)


def try_lock(descriptor: int, kind: int) -> bool:
    """Whether the lock could be had, without waiting for it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Whether some process has the lock for itself. Looking takes it for a moment, shared."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def file_size(path: Path) -> int:
    """In bytes; 0 for a file that is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
